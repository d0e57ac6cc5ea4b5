// A picture is pasted into the open tab from anywhere on the page; a text goes where the cursor is, as always.
document.addEventListener("paste", async (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
  const place = [...document.querySelectorAll(".picture")].find((one) => one.offsetParent);
  if (!file || !place) return;
  event.preventDefault();
  place.querySelector("[aria-label='Clear']")?.click(); // a picture that is there makes room
  let input = null;
  for (let frames = 0; !input && frames < 60; frames += 1) {
    await new Promise(requestAnimationFrame);
    input = place.querySelector("input[type=file]");
  }
  if (!input) return;
  const sent = new DataTransfer();
  sent.items.add(file);
  input.files = sent.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
});
