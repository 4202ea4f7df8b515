// Fails when the built page uses a class of a component of Mantine whose styles it does not have.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const assets = at("../bundle/assets");
const styles = at("../node_modules/@mantine/core/styles");
const CLASS = /\bm_[0-9a-f]{6,8}\b/g;

const classesIn = (folder, ending) =>
  new Set(
    readdirSync(folder)
      .filter((name) => name.endsWith(ending))
      .flatMap((name) => readFileSync(join(folder, name), "utf8").match(CLASS) ?? []),
  );

const used = classesIn(assets, ".js");
const styled = classesIn(assets, ".css");
const missing = readdirSync(styles)
  .filter((name) => name.endsWith(".css") && !name.endsWith(".layer.css"))
  .filter((name) => (readFileSync(join(styles, name), "utf8").match(CLASS) ?? []).some((one) => used.has(one) && !styled.has(one)));
if (missing.length > 0) {
  console.error(`src/app/mantineStyles.ts lacks: ${missing.join(", ")}`);
  process.exit(1);
}
