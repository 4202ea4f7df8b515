import { execFileSync } from "node:child_process";

import { describe, expect, it } from "vitest";

import { shellCommand, shellWord } from "@/format/shell";

const ODD = [
  "clicks", "", "it's", "a b", "a;rm -rf ~", "$(id)", "`id`", "a\nb\t", "\u001b[31m", "abc\u202etxt", "\\", "~", "*", "a\u00071",
  "{a,b}", "!x", "#", "день", "it's\u200b\\n",
];

describe("a command that is copied", () => {
  it("is read back by a shell word by word, whatever the words hold", () => {
    const command = shellCommand(["printf", "%s\\0", ...ODD]);
    const read = execFileSync("bash", ["-c", command]).toString();
    expect(read.split("\0").slice(0, -1)).toEqual(ODD);
  });

  it("shows what cannot be seen, and stays one line", () => {
    expect(shellWord("abc\u202etxt")).toBe("$'abc\\342\\200\\256txt'");
    expect(shellCommand(ODD)).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  });

  it("is bare where nothing needs a quote", () => {
    expect(shellCommand(["cbp", "records", "clicks", "count.totals", "--newest"])).toBe("cbp records clicks count.totals --newest");
    expect(shellWord("url=/docs")).toBe("url=/docs");
  });
});
