/**
 * What a reader cannot see, or what turns the text around it: control and format characters, fillers,
 * halves of pairs. Tabs, line ends and what joins letters or emoji stay.
 */
const HIDDEN =
  /(?![\t\n\u200c\u200d\u{fe00}-\u{fe0f}\u{600}-\u{605}\u{6dd}\u{70f}\u{890}\u{891}\u{8e2}])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const RIGHT_TO_LEFT = /[\u{590}-\u{8ff}\u{fb1d}-\u{fdff}\u{fe70}-\u{feff}\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** Return a text whose hidden characters are escapes, as the command line prints them. Pure. */
export function visible(text: string): string {
  return text.replaceAll(HIDDEN, escapeOf);
}

/** Tell whether a text has letters that are read from the right, and so would move what is beside it. Pure. */
export function turns(text: string): boolean {
  return RIGHT_TO_LEFT.test(text);
}

function escapeOf(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (character === "\r") return "\\r";
  if (code <= 0xff) return `\\x${hex(code, 2)}`;
  return code <= 0xffff ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, "0");
}
