/* Puts the page together; it is ready when the grid and the list are there. */

setUpTheme();
showSummary();
showModels();
setUpClasses();
showMeanings();
setUpSelectedBar();
setUpOverview();
setUpDetails();
setUpHeads();
setUpMaps();
setUpFigures();
setUpPrinting();
showOwn();
selectHead(firstSelection());
document.documentElement.dataset.ready = "true";
