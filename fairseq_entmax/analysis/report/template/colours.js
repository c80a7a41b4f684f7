/* One scale of colours for numbers, and the theme it is seen in.

   The scale runs from dark blue to light yellow, steadily lighter, so that who cannot tell
   hues apart, and a print in grey, still see the order. What is larger always stands out more
   from the page: on a dark page the light end is the large one, on a light page the dark end. */

const RAMP = ["#1d2f72", "#23558f", "#2a7a94", "#4c9f8c", "#97c47e", "#f0e490"].map(channels);
const THEME_STORE = "fairseq-entmax-report-theme";
const systemTheme = matchMedia("(prefers-color-scheme: dark)");
const themeListeners = [];

function channels(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemTheme.matches;
}

function onTheme(listener) {
  themeListeners.push(listener);
}

/* Done when every listener is. */
function tellTheme() {
  return Promise.all(themeListeners.map((listener) => listener()));
}

/* The three channels at a place between 0, the smallest, and 1, the largest. */
function rampColour(place) {
  const along = (isDark() ? place : 1 - place) * (RAMP.length - 1);
  const low = Math.min(Math.floor(along), RAMP.length - 2);
  const share = along - low;
  return RAMP[low].map((value, i) => Math.round(value + share * (RAMP[low + 1][i] - value)));
}

function css(colour) {
  return `rgb(${colour.join(" ")})`;
}

/* Relative luminance, as WCAG 2 defines it. */
function luminance(colour) {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/* Black or white, whichever reads better; 0.179 is where both have the same contrast. */
function textOn(colour) {
  return luminance(colour) > 0.179 ? "#000" : "#fff";
}

function rampGradient() {
  const stops = [0, 0.2, 0.4, 0.6, 0.8, 1].map((place) => css(rampColour(place)));
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

function setUpTheme() {
  const button = document.getElementById("theme");
  const stored = storedTheme();
  if (stored) {
    document.documentElement.dataset.theme = stored;
  }
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    storeTheme(document.documentElement.dataset.theme);
    tellTheme();
  });
  systemTheme.addEventListener("change", tellTheme);
  onTheme(show);
  show();
}

/* A browser may refuse a file its storage: the choice then lasts as long as the page. */
function storedTheme() {
  try {
    return localStorage.getItem(THEME_STORE);
  } catch {
    return null;
  }
}

function storeTheme(theme) {
  try {
    localStorage.setItem(THEME_STORE, theme);
  } catch {
    // nothing is lost but the memory of it
  }
}
