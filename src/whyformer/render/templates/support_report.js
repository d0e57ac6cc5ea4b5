// A click on a heading sorts the answers by its column; a second one the other way round.
for (const button of document.querySelectorAll(".judged button")) {
  button.addEventListener("click", () => {
    const body = document.querySelector(".judged > tbody"), column = Number(button.dataset.column);
    const sign = button.dataset.sign === "1" ? -1 : 1;
    const value = (row) => Number(row.children[column].dataset.value);
    const rows = [...body.children].sort((first, second) => sign * (value(first) - value(second)));
    for (const other of document.querySelectorAll(".judged button")) delete other.dataset.sign;
    button.dataset.sign = String(sign);
    body.append(...rows);
  });
}
