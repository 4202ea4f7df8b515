// Writes the types of the REST interface out of its OpenAPI document.
import { existsSync, readFileSync, writeFileSync } from "node:fs";

import openapi, { astToString } from "openapi-typescript";

const document = new URL("../openapi.json", import.meta.url);
const target = new URL("../src/api/schema.d.ts", import.meta.url);

const text = `// Made by scripts/types.mjs out of openapi.json.\n${astToString(await openapi(document))}`;
// An unchanged file lets the type checker go on from its last result.
if (!existsSync(target) || readFileSync(target, "utf8") !== text) writeFileSync(target, text);
