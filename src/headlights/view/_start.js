
const data = JSON.parse(document.getElementById("data").textContent);
const cards = [...document.querySelectorAll(".card")].flatMap((card, index) => {
  if (!data[index]) return [];
  return [data[index].packed ? new Explorer(card, data[index]) : new Card(card, data[index], index === 0)];
});
const sourceOf = (card) => JSON.stringify(card.names?.source);
for (const card of cards.filter(({ names }) => names)) {
  card.peers = cards.filter((other) => other !== card && sourceOf(other) === sourceOf(card));
}
