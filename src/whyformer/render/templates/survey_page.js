// A click on a heading sorts its table; a second one the other way round. Text sorts from a to z first.
for (const table of document.querySelectorAll("div.drivers")) {
  for (const button of table.querySelectorAll(".head button")) {
    button.addEventListener("click", () => {
      const key = "data-" + button.dataset.column, isText = Number(button.dataset.column) < 2;
      const isRising = button.getAttribute("aria-sort") ? button.getAttribute("aria-sort") === "descending" : isText || key === "data-6";
      const value = (row) => isText ? row.getAttribute(key) : Number(row.getAttribute(key));
      const compare = (a, b) => isText ? value(a).localeCompare(value(b)) : value(a) - value(b);
      const rows = [...table.querySelectorAll(".driver")].sort((a, b) => isRising ? compare(a, b) : compare(b, a));
      for (const other of table.querySelectorAll(".head button")) other.removeAttribute("aria-sort");
      button.setAttribute("aria-sort", isRising ? "ascending" : "descending");
      table.append(...rows);
    });
  }
}
// Filters apply to both tables.
const filters = document.querySelector(".filters");
if (filters) {
  const wanted = () => Object.fromEntries([...filters.querySelectorAll("[data-filter]")].map((one) => [one.dataset.filter, one.value]));
  const apply = () => {
    const { search, answer, kind } = wanted();
    let shown = 0;
    for (const row of document.querySelectorAll(".driver")) {
      const fits = row.dataset.name.includes(search.trim().toLowerCase()) && (!answer || row.dataset.answer === answer) && (!kind || row.dataset.kind === kind);
      row.hidden = !fits;
      shown += fits && row.dataset.proven === "1";
    }
    filters.querySelector("output").textContent = search || answer || kind ? `${shown} shown` : "";
  };
  filters.addEventListener("input", apply);
  filters.addEventListener("submit", (event) => event.preventDefault());
}
