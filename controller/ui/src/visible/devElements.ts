/** `elements.ts` for `npm run dev`, in place of `react/jsx-dev-runtime`: the same text, with React's warnings. */
import type { ElementType, Key } from "react";
import { Fragment, jsxDEV as make } from "react/jsx-dev-runtime";

import { visibleProps } from "@/visible/elements";

export { Fragment };

export function jsxDEV(
  type: ElementType,
  props: Record<string, unknown>,
  key: Key | undefined,
  isStatic: boolean,
  source?: Parameters<typeof make>[4],
  self?: unknown,
) {
  return make(type, visibleProps(type, props), key, isStatic, source, self);
}
