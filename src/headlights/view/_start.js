
const data = JSON.parse(document.getElementById("data").textContent);
document.querySelectorAll(".card").forEach((card, index) => {
  if (data[index]?.packed) new Explorer(card, data[index]);
  else if (data[index]) new Card(card, data[index], index === 0);
});
