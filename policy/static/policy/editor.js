"use strict";
// Conveniences only: the page does all of its work without them.
(() => {
  const form = document.getElementById("editor");
  const sheet = document.getElementById("id_source");
  const written = sheet.value;
  let leaving = false;

  const grow = () => {
    if (CSS.supports("field-sizing", "content")) return;
    sheet.style.height = "auto";
    sheet.style.height = `${sheet.scrollHeight + 24}px`;
  };

  // Places are counted in characters, and the browser counts some of them twice.
  const browserOffset = (text, place) => Array.from(text).slice(0, place).join("").length;

  const show = (link) => {
    const [start, end] = [link.dataset.start, link.dataset.end].map((place) => browserOffset(written, Number(place)));
    sheet.focus({ preventScroll: true });
    sheet.setSelectionRange(start, end);
    const line = written.slice(0, start).split("\n").length;
    const top = sheet.getBoundingClientRect().top + window.scrollY + line * 20;
    window.scrollTo({ top: top - window.innerHeight / 2 });
  };

  document.querySelectorAll("a.place").forEach((link) =>
    link.addEventListener("click", (event) => {
      event.preventDefault();
      show(link);
    }),
  );
  sheet.addEventListener("input", grow);
  form.addEventListener("submit", () => (leaving = true));
  window.addEventListener("beforeunload", (event) => {
    if (!leaving && sheet.value !== written) event.preventDefault();
  });
  grow();
})();
