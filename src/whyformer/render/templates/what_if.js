// Words and blocks are removed by clicks; the model's answers without them were computed before, or are asked for.
for (const root of document.querySelectorAll(".whyformer [data-what-if]:not([data-ready])")) {
  root.dataset.ready = "";
  const { names, scores, answers, target, slope, known } = JSON.parse(root.dataset.whatIf);
  const one = (selector) => root.querySelector(selector), all = (selector) => [...root.querySelectorAll(selector)];
  const buttons = all("[data-unit]"), bars = all(".answers li"), slider = one(".most input"), circle = one(".curve circle");
  const [undo, reset] = ["undo", "reset"].map((act) => one(`[data-act=${act}]`));
  // A page that asks the model is drawn again with the answer: what was removed, and before, stays.
  const memory = (globalThis.whyformerRemovals ??= {}), title = names.join();
  const linked = (root.dataset.removed ?? "").split("-").filter((unit) => /^\d+$/.test(unit) && unit in names).map(Number);
  let { removed, before } = root.dataset.asks && memory.title === title ? memory : { removed: new Set(linked), before: [] };

  const percent = (share) => share > 0 && share < 0.001 ? "under 0.1 %" : share < 1 && share > 0.999 ? "over 99.9 %"
    : `${(100 * share).toFixed(share >= 0.01 && share <= 0.99 || share === 0 || share === 1 ? 0 : 1)} %`;
  const kept = (share) => Math.min(Math.max(share, 1e-6), 1 - 1e-6);
  const key = () => [...removed].sort((a, b) => a - b).join(",");
  const predicted = () => {
    if (slope === null) return null;
    const whole = kept(known[""][target]), sum = [...removed].reduce((total, unit) => total + scores[unit], 0);
    return 1 / (1 + Math.exp(-(Math.log(whole / (1 - whole)) - slope * sum)));
  };
  const isFirst = () => [...removed].every((unit) => unit < removed.size);

  const show = () => {
    const shares = known[key()], guess = predicted(), whole = known[""][target];
    for (const button of buttons) button.setAttribute("aria-pressed", removed.has(Number(button.dataset.unit)));
    bars.forEach((bar, number) => {
      bar.querySelector("em").style.width = `${100 * (shares ?? known[""])[number]}%`;
      bar.querySelector("small").textContent = shares ? percent(shares[number]) : "?";
    });
    one(".answers").classList.toggle("unknown", !shares);
    const mark = one(".answers b");
    mark.hidden = guess === null || !removed.size;
    if (guess !== null) mark.style.left = `${100 * guess}%`;
    const foretold = guess === null ? "The scores cancel, and predict no probability." : `The scores predict ${percent(guess)}.`;
    one(".said").textContent = !removed.size ? `${answers[target]}: ${percent(whole)} with everything.`
      : shares ? `${answers[target]}: ${percent(whole)} → ${percent(shares[target])} without ${list()}. ${foretold}`
      : root.dataset.asks !== undefined ? `Asking the model without ${list()} …`
      : `Without ${list()}: not computed in this file, which knows single removals, those of the highest scores in order, and combinations of the first four. ${foretold}`;
    slider.value = isFirst() ? removed.size : 0;
    one(".most b").textContent = slider.value;
    circle.toggleAttribute("hidden", !(isFirst() && shares));
    if (isFirst() && shares) {
      const [, , width, height] = one(".curve").getAttribute("viewBox").split(" ").map(Number);
      circle.setAttribute("cx", ((width - 12) * removed.size) / names.length);
      circle.setAttribute("cy", (height - 12) * (1 - shares[target]));
    }
    Object.assign(memory, { title, removed, before });
    root.dataset.removed = key().replaceAll(",", "-");
    undo.disabled = !before.length;
    reset.disabled = !removed.size;
    if (!shares && root.dataset.asks !== undefined)
      root.dispatchEvent(new CustomEvent("ask", { bubbles: true, detail: [...removed].sort((a, b) => a - b) }));
  };
  const list = () => {
    const words = [...removed].sort((a, b) => a - b).map((unit) => names[unit]);
    return words.length > 4 ? `${words.slice(0, 3).join(", ")} and ${words.length - 3} more` : words.join(", ");
  };
  const change = (units, isStep = true) => {
    if (isStep) before.push(removed);
    removed = new Set(units);
    show();
  };

  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-unit]");
    if (!button) return;
    const unit = Number(button.dataset.unit), next = new Set(removed);
    if (!next.delete(unit)) next.add(unit);
    change(next);
  });
  slider.addEventListener("input", () => change(Array.from({ length: Number(slider.value) }, (_, unit) => unit)));
  undo.addEventListener("click", () => change(before.pop(), false));
  reset.addEventListener("click", () => change([]));
  show();
}
