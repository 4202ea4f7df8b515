import { Kbd, Modal, Table, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useEffect, useMemo, useRef } from "react";
import { useNavigate } from "react-router";

import { useLive } from "@/api/live";
import { useSession } from "@/api/session";
import { SCREENS } from "@/screens/registry";

const SHOW = "cbp-show-shortcuts";
const SEQUENCE_MILLISECONDS = 1_200;

interface Shortcut {
  keys: string;
  words: string;
  call: () => void;
}

/** Show the dialog of keys. */
export function showShortcuts(): void {
  window.dispatchEvent(new Event(SHOW));
}

/** Listens to the keys of the page, and lists them in a dialog. */
export function Shortcuts() {
  const [opened, { open, close }] = useDisclosure(false);
  const navigate = useNavigate();
  const session = useSession();
  const { toggle } = useLive();
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");

  const shortcuts = useMemo<Shortcut[]>(
    () => [
      ...SCREENS.filter(({ keys, scope }) => keys !== undefined && session.can(scope)).map(
        ({ keys = "", title, path }) => ({
          keys,
          words: `Go to ${title}`,
          call: () => void navigate(path),
        }),
      ),
      { keys: "p", words: "Pause or resume live updates", call: toggle },
      {
        keys: "t",
        words: "Switch between light and dark colours",
        call: () => setColorScheme(scheme === "light" ? "dark" : "light"),
      },
      { keys: "?", words: "Show these shortcuts", call: open },
    ],
    [navigate, open, scheme, session, setColorScheme, toggle],
  );

  useKeys(shortcuts);
  useEffect(() => {
    window.addEventListener(SHOW, open);
    return () => window.removeEventListener(SHOW, open);
  }, [open]);

  return (
    <Modal opened={opened} onClose={close} title="Keyboard shortcuts" closeButtonProps={{ "aria-label": "Close" }}>
      <Table>
        <Table.Tbody>
          <Row keys="Ctrl K" words="Go to a screen, a dataflow or a stage" />
          <Row keys="/" words="Same as Ctrl K" />
          {shortcuts.map(({ keys, words }) => (
            <Row key={keys} keys={keys} words={words} />
          ))}
          <Row keys="↑ ↓" words="Move between the rows of a table" />
          <Row keys="Enter" words="Open the chosen row" />
        </Table.Tbody>
      </Table>
    </Modal>
  );
}

function Row({ keys, words }: { keys: string; words: string }) {
  return (
    <Table.Tr>
      <Table.Th scope="row" style={{ whiteSpace: "nowrap" }}>
        {keys.split(" ").map((key, at) => (
          <Kbd key={at} mr={4}>
            {key}
          </Kbd>
        ))}
      </Table.Th>
      <Table.Td>{words}</Table.Td>
    </Table.Tr>
  );
}

/** Call what belongs to the keys that are pressed outside of fields. */
function useKeys(shortcuts: readonly Shortcut[]): void {
  const before = useRef({ key: "", at: 0 });
  useEffect(() => {
    function press(event: KeyboardEvent) {
      if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
      const now = Date.now();
      const { key, at } = before.current;
      const sequence = now - at < SEQUENCE_MILLISECONDS ? `${key} ${event.key}` : event.key;
      const shortcut =
        shortcuts.find(({ keys }) => keys === sequence) ??
        shortcuts.find(({ keys }) => keys === event.key);
      before.current = { key: event.key, at: now };
      if (shortcut === undefined) return;
      event.preventDefault();
      before.current = { key: "", at: 0 };
      shortcut.call();
    }
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [shortcuts]);
}

function isField(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))
  );
}
