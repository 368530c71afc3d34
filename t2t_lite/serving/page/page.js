const { models } = await (await fetch("models")).json();
document.getElementById("models").textContent =
  models.map(model => model.name).join(", ");
