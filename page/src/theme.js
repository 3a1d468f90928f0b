// Dark or light: the system's setting, or the user's choice.

import { remembered, remember } from "./storage.js";

export const THEMES = ["system", "light", "dark"];

export function theme() {
  const chosen = remembered("theme", "system");
  return THEMES.includes(chosen) ? chosen : "system";
}

export function applyTheme(chosen = theme()) {
  remember("theme", chosen);
  if (chosen === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = chosen;
}
