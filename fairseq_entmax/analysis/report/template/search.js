/* Finding heads by words, in any order. */

/* "layer 2" is one word, so that its number is not found as another's. */
function joinedPlaces(text) {
  return text.toLowerCase().replaceAll("−", "-").replace(/\b(layer|head)\s+(\d+)\b/g, "$1=$2");
}

function searchWords(text) {
  return joinedPlaces(text).split(/[\s;,·]+/).filter(Boolean);
}

/* Ways for a term to fit a word, the strictest first. A number is no beginning of another. */
const FITS = [
  (term, word) => word === term,
  (term, word) => word.startsWith(term) && !/=\d+$/.test(term),
  (term, word) => word.split(/[-_/.=]/).some((part) => part.startsWith(term)),
];

/* For each term the test that an entry must pass: the strictest way that any entry passes, so
   that a model's whole name does not find those that begin like it. */
function termTests(query, entries) {
  return searchWords(query).map((term) => {
    const tests = FITS.map((fits) => (words) => words.some((word) => fits(term, word)));
    return tests.find((test) => entries.some(test)) ?? (() => false);
  });
}
