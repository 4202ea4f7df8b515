import "@/app/mantineStyles";
import "@mantine/notifications/styles.css";
import "@mantine/spotlight/styles.css";
import "@/app/app.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "@/app/App";
import { styleNonce } from "@/app/styleNonce";

// Libraries that add style elements while the page runs ask for the nonce under this name.
Object.assign(globalThis, { __webpack_nonce__: styleNonce() });

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no element #root");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
