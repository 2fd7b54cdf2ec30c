// Regions that scroll take the keyboard's focus, and the search has a name.
addEventListener("load", () => {
  for (const region of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  }
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
});
