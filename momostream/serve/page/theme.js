// Before anything is drawn: the colours that were chosen last.
"use strict";
(() => {
  let chosen = "auto";
  try { chosen = localStorage.getItem("momostream.theme") || "auto"; } catch { /* storage is switched off */ }
  document.documentElement.dataset.theme = chosen;
})();
