/**
 * Makes every element of the page, those of the libraries among them, in place of `react/jsx-runtime`.
 *
 * A name from outside can hold characters that hide, or turn the text around it. They are made
 * visible here, where text becomes an element, so that no screen can forget it.
 */
import type { ElementType, Key, ReactElement } from "react";
import { Fragment, jsx as make, jsxs as makeOfMany } from "react/jsx-runtime";

import { turns, visible } from "@/visible/visible";

export { Fragment };

type Props = Record<string, unknown>;

/** Attributes that are shown or read aloud. */
const SHOWN = ["title", "aria-label", "aria-description", "aria-valuetext", "aria-roledescription", "placeholder", "alt"] as const;
/** Elements whose content is text only: no element may be in it. */
const TEXT_ONLY = new Set(["option", "title", "desc", "text", "tspan", "textPath"]);
/** Elements whose content is no text for a reader, or is edited. */
const LEFT_ALONE = new Set(["style", "script", "textarea"]);

/*@__NO_SIDE_EFFECTS__*/
export function jsx(type: ElementType, props: Props, key?: Key): ReactElement {
  return make(type, visibleProps(type, props), key);
}

/*@__NO_SIDE_EFFECTS__*/
export function jsxs(type: ElementType, props: Props, key?: Key): ReactElement {
  return makeOfMany(type, visibleProps(type, props), key);
}

/** Return the properties of an element with its text made visible; the same ones if nothing is hidden. */
export function visibleProps(type: ElementType, props: Props): Props {
  const isHost = typeof type === "string";
  // `data-exact`: the letters lie under those of a field.
  if (isHost && (LEFT_ALONE.has(type) || props["data-exact"] === true)) return props;
  const changed: Props = {};
  const children = visibleChildren(props["children"], isHost && !TEXT_ONLY.has(type));
  if (children !== props["children"]) changed["children"] = children;
  if (isHost) {
    for (const name of SHOWN) {
      const given = props[name];
      if (typeof given === "string" && visible(given) !== given) changed[name] = visible(given);
    }
  }
  return Object.keys(changed).length === 0 ? props : { ...props, ...changed };
}

function visibleChildren(children: unknown, mayIsolate: boolean): unknown {
  if (typeof children === "string") {
    const text = visible(children);
    return mayIsolate && turns(text) ? make("bdi", { children: text }) : text;
  }
  if (!Array.isArray(children)) return children;
  const made = children.map((one: unknown) => visibleChildren(one, mayIsolate));
  return made.some((one, at) => one !== children[at]) ? made : children;
}
