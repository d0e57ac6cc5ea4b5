// A target is a part of the call. The one that is chosen colours the conversation by the effect of each source on it.
for (const root of document.querySelectorAll(".whyformer [data-action]:not([data-ready])")) {
  root.dataset.ready = "";
  const { targets } = JSON.parse(root.dataset.action);
  const one = (selector) => root.querySelector(selector);
  const all = (selector) => [...root.querySelectorAll(selector)];
  const pieces = all("[data-piece]"), items = all(".ranked li"), chips = all("[data-target]");
  const shade = (element, level) => {
    element.className = element.className.replace(/\b(for|against)-\d+\b/g, "").trim();
    if (level) element.classList.add(`${level < 0 ? "against" : "for"}-${Math.abs(level)}`);
  };
  const bar = (place, level, figure) => {
    const line = place.querySelector("em");
    line.style.width = `${Math.abs(level)}%`;
    shade(line, level);
    place.querySelector("small").textContent = figure;
  };
  const show = (number) => {
    const target = targets[number];
    for (const chip of chips) chip.setAttribute("aria-pressed", String(Number(chip.dataset.target) === number));
    pieces.forEach((piece, place) => shade(piece, target.levels[place]));
    one(".heading q").textContent = chips.find((chip) => Number(chip.dataset.target) === number).querySelector("span").textContent;
    const verdict = one(".heading .chip");
    [verdict.textContent, verdict.className] = [target.verdict[0], `chip ${target.verdict[1]}`];
    for (const name of ["request", "untrusted"]) bar(one(`[data-effect=${name}]`), ...target[name]);
    items.forEach((item, place) => {
      item.hidden = place >= target.ranked.length;
      if (item.hidden) return;
      const [name, trust, text, level, figure, piece] = target.ranked[place];
      item.querySelector("b").textContent = name;
      item.querySelector("u").textContent = trust;
      item.querySelector("u").className = `trust ${trust}`;
      item.querySelector("span > span").textContent = text;
      item.dataset.pieceOf = piece;
      bar(item, level, figure);
    });
    one(".facts").textContent = target.facts;
  };
  const point = (item) => {
    for (const piece of all(".pointed")) piece.classList.remove("pointed");
    const piece = pieces[Number(item.dataset.pieceOf)];
    const folded = piece.closest("details");
    if (folded) folded.open = true;
    piece.classList.add("pointed");
    piece.scrollIntoView({ block: "center", behavior: "smooth" });
  };
  for (const chip of chips) chip.addEventListener("click", () => show(Number(chip.dataset.target)));
  for (const item of items) {
    item.addEventListener("click", () => point(item));
    item.addEventListener("keydown", (event) => {
      if (!["Enter", " "].includes(event.key)) return;
      event.preventDefault();
      point(item);
    });
  }
}
