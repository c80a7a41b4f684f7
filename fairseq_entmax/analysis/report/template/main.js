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
document.documentElement.dataset.ready = "true";
