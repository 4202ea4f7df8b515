import { createElement, type ElementType } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";

import { jsx, jsxs } from "@/visible/elements";
import { visible } from "@/visible/visible";

const HIDING = ["\u0000", "\u001b", "\r", "\u007f", "\u0085", "\u00ad", "\u061c", "\u200b", "\u200e", "\u202e", "\u2028", "\u2066", "\u2069", "\u3164", "\ufeff", "\ud800", "\u{e0041}"];

function markup(type: ElementType, props: Record<string, unknown>): string {
  return renderToStaticMarkup((Array.isArray(props["children"]) ? jsxs : jsx)(type, props));
}

describe("text from outside", () => {
  it("shows what hides or turns the text around it, and leaves the rest", () => {
    for (const one of HIDING) expect(visible(`a${one}b`)).toMatch(/^a\\(x..|u....|U........|r)b$/);
    expect(visible("invoice\u202efdp.exe")).toBe("invoice\\u202efdp.exe");
    for (const text of ["", "a\tb\n", "день", "שלום", "👩‍👧", "❤️", "می‌خواهم", "5\u00a0MB"]) expect(visible(text)).toBe(text);
    expect(visible(visible("\u202e"))).toBe("\\u202e");
  });

  it("is made visible wherever an element is made of it", () => {
    const name = "a\u202eb";
    expect(markup("td", { children: name })).toBe("<td>a\\u202eb</td>");
    expect(markup("td", { children: ["file ", [name], 3] })).toBe("<td>file a\\u202eb3</td>");
    expect(markup("a", { title: name, "aria-label": name, href: "/b", children: "x" })).toBe(
      '<a title="a\\u202eb" aria-label="a\\u202eb" href="/b">x</a>',
    );
    expect(markup(({ children }) => createElement("i", null, children), { children: name })).toBe("<i>a\\u202eb</i>");
  });

  it("does not move its neighbours if it is read from the right", () => {
    expect(markup("p", { children: ["of ", "שלום", " 3"] })).toBe("<p>of <bdi>שלום</bdi> 3</p>");
    expect(markup("option", { children: "שלום" })).toBe("<option>שלום</option>");
  });

  it("stays exact where it is edited, and in what is no text", () => {
    const name = "a\u202eb";
    expect(markup("span", { children: name, "data-exact": true })).toContain(name);
    expect(markup("input", { value: name, readOnly: true })).toContain(name);
    expect(markup("a", { href: `/x/${name}`, children: "x" })).toContain(name);
  });
});
