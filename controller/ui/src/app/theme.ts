import { createTheme, Drawer, Modal, Notification, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

/** Blue that is readable as text on white and, in its light shades, on black. */
const signal: MantineColorsTuple = [
  "#e7f3ff", "#cfe3fb", "#9dc5f5", "#68a6ef", "#3f8bea", "#277ae8", "#1864ab", "#155a9c", "#104b84", "#073763",
];

/** A dialog's head is no banner of the page. */
const DIALOG = {
  attributes: { header: { role: "presentation" } },
  closeButtonProps: { "aria-label": "Close" },
};

export const theme = createTheme({
  primaryColor: "signal",
  primaryShade: { light: 6, dark: 7 },
  colors: { signal },
  defaultRadius: "sm",
  autoContrast: true,
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif',
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "Noto Sans Mono", monospace',
  headings: { fontWeight: "650" },
  cursorType: "pointer",
  components: {
    Modal: Modal.extend({ defaultProps: DIALOG }),
    Drawer: Drawer.extend({ defaultProps: DIALOG }),
    Notification: Notification.extend({
      defaultProps: { closeButtonProps: { "aria-label": "Dismiss" } },
    }),
  },
});

/** Mantine's dimmed text and its links have less contrast on grey than WCAG asks for. */
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: { "--mantine-color-dimmed": "#5c636a" },
  dark: { "--mantine-color-dimmed": "#a6acb3", "--mantine-color-anchor": "#8abaf4" },
});
