// A patch or region is read by pointing at it, by a click, or with the arrow keys; a click keeps it.
const readPatches = (part) => {
  part.dataset.ready = "";
  const stage = part.querySelector(".stage"), frame = part.querySelector(".cell"), reading = part.querySelector(".reading");
  const cells = JSON.parse(stage.dataset.cells), help = reading.textContent;
  let kept = -1;
  const show = (number) => {
    frame.hidden = number < 0;
    if (number < 0) return void (reading.textContent = help);
    const [left, top, width, height, name, score] = cells[number];
    Object.assign(frame.style, { left: `${left}%`, top: `${top}%`, width: `${width}%`, height: `${height}%` });
    reading.textContent = `${name}: ${score}`;
  };
  const at = (event) => {
    const box = stage.getBoundingClientRect();
    const x = (100 * (event.clientX - box.left)) / box.width, y = (100 * (event.clientY - box.top)) / box.height;
    const inside = cells.map(([left, top, width, height], number) => ({ number, area: width * height,
      hit: left <= x && x < left + width && top <= y && y < top + height })).filter(({ hit }) => hit);
    return inside.sort((one, other) => one.area - other.area)[0]?.number ?? -1;
  };
  const beside = (across, down) => {
    const [left, top, width, height] = cells[Math.max(kept, 0)];
    const x = left + width / 2, y = top + height / 2;
    let best = kept, least = Infinity;
    cells.forEach(([l, t, w, h], number) => {
      const dx = l + w / 2 - x, dy = t + h / 2 - y, along = across * dx + down * dy, aside = Math.abs(across * dy) + Math.abs(down * dx);
      if (number !== kept && along > 0.01 && along + 3 * aside < least) [best, least] = [number, along + 3 * aside];
    });
    return best;
  };
  stage.addEventListener("mousemove", (event) => show(at(event)));
  stage.addEventListener("mouseleave", () => show(kept));
  stage.addEventListener("click", (event) => { kept = at(event); show(kept); });
  stage.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!step && event.key !== "Escape") return;
    event.preventDefault();
    kept = !step ? -1 : kept < 0 ? 0 : beside(...step);
    show(kept);
  });
  part.querySelector(".opacity input").addEventListener("input", (event) => {
    part.querySelector(".heat").style.opacity = event.target.value / 100;
  });
};
// Of a text that was written, one word at a time is explained.
const chooseWords = (root) => {
  root.dataset.ready = "";
  const words = [...root.querySelectorAll(".words button")], articles = [...root.querySelectorAll("article")];
  words.forEach((word, number) => word.addEventListener("click", () => {
    words.forEach((one) => one.setAttribute("aria-pressed", one === word));
    articles.forEach((article, place) => { article.hidden = place !== number; });
  }));
};
// A page inside the page is as high as what is in it.
const fitFrame = (frame) => {
  frame.dataset.ready = "";
  const fit = () => {
    const page = frame.contentDocument?.documentElement;
    if (page) frame.style.height = `${page.querySelector("main")?.offsetHeight ?? page.scrollHeight}px`;
  };
  frame.addEventListener("load", fit);
  new ResizeObserver(fit).observe(frame);
  fit();
};
const enliven = () => {
  document.querySelectorAll("[data-framed]:not([data-ready])").forEach(fitFrame);
  document.querySelectorAll("[data-written]:not([data-ready])").forEach(chooseWords);
  document.querySelectorAll("[data-pictured]:not([data-ready])").forEach(readPatches);
  {{ sources | safe }}
  {{ removals | safe }}
};
// A choice of parts that was not computed before is put to the model.
element.addEventListener("ask", (event) => trigger("input", { removed: event.detail }));
element.addEventListener("click", (event) => {
  const find = event.target.closest("[data-find]");
  if (find) trigger("select", { query: Number(find.dataset.find) });
  const answer = event.target.closest("[data-answer]");
  if (answer) trigger("select", { answer: answer.dataset.answer });
});
// On a phone the answer is far below the question: who asked is taken there.
const comeIntoView = () => {
  const isFar = element.offsetParent && element.getBoundingClientRect().top > 0.85 * innerHeight;
  if (isFar && navigator.userActivation?.hasBeenActive) element.scrollIntoView();
};
enliven();
watch("value", () => { enliven(); comeIntoView(); });
