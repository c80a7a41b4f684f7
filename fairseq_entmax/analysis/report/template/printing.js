/* Printed is what a page holds at that moment: every figure, on light paper. */

const printing = { isReady: false, theme: null };

function setUpPrinting() {
  // From the browser's menu there is no time to wait: what needs no timer is done even so
  addEventListener("beforeprint", preparePrint);
  addEventListener("afterprint", endPrint);
  byId("print").addEventListener("click", async () => {
    await preparePrint();
    window.print();
  });
}

async function preparePrint() {
  if (printing.isReady) {
    return;
  }
  printing.isReady = true;
  printing.theme = document.documentElement.dataset.theme ?? null;
  document.documentElement.dataset.theme = "light";
  await Promise.all([tellTheme(), drawEveryFigure()]);
}

function endPrint() {
  if (printing.theme === null) {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = printing.theme;
  }
  printing.isReady = false;
  tellTheme();
}
