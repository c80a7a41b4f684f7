/* Puts the page together; it is ready when the grid and the list are there. */

setUpTheme();
showSummary();
showModels();
setUpClasses();
showMeanings();
showEvidence();
setUpSelectedBar();
setUpOverview();
setUpDetails();
setUpHeads();
setUpMaps();
setUpFigures();
setUpDrawings();
setUpTables();
setUpPrinting();
showOwn();
selectHead(firstSelection());
// The list begins with its first rows, wherever the head is that was chosen for the reader
byId("heads-scroll").scrollTop = 0;
document.documentElement.dataset.ready = "true";
