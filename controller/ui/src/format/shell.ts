/** The words of a command, such as `["cbp", "status", dataflow]`: one element is one word, whatever it holds. */
export type Words = readonly string[];

/** Return a word as a shell reads it back: bare if it is harmless, else quoted. Pure. */
export function shellWord(text: string): string {
  if (/^[A-Za-z0-9_./:=@%+,-]+$/.test(text)) return text;
  if (!UNSEEN.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  // What cannot be seen is written by its bytes, as bash, zsh and POSIX 2024 read them.
  const plain = text.replaceAll(/['\\]/g, "\\$&");
  return `$'${plain.replaceAll(UNSEEN_EACH, (one) => octets(one))}'`;
}

/** Return a command as one line for a shell. Pure. */
export function shellCommand(words: Words): string {
  return words.map(shellWord).join(" ");
}

const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;
const UNSEEN_EACH = new RegExp(UNSEEN, "gu");

/** Three digits each, so that a digit behind it is not taken for a part. */
function octets(character: string): string {
  return [...new TextEncoder().encode(character)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
}
