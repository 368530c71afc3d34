// Languages by their codes: their names, and how they are written.

const names = new Intl.DisplayNames("en", { type: "language" });
const FROM_RIGHT = new Set([
  "ar", "ckb", "dv", "fa", "he", "ks", "ps", "sd", "ug", "ur", "yi"]);

// "German" for "de"; a code that is none stays as it is.
export function languageName(code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}

// Tells the browser and the screen reader what language a node is in.
export function setLanguage(node, code) {
  const locale = localeOf(code);
  if (locale) node.lang = locale.baseName;
  else node.removeAttribute("lang");
  node.dir = locale ? direction(locale) : "auto";
}

function localeOf(code) {
  try {
    return code ? new Intl.Locale(code) : null;
  } catch {
    return null;
  }
}

function direction(locale) {
  const info = locale.getTextInfo?.() ?? locale.textInfo;
  return info?.direction ?? (FROM_RIGHT.has(locale.language) ? "rtl" : "ltr");
}
