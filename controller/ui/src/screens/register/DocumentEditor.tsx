import { useRef } from "react";

import { offsetOf, splitAt, type Mistake } from "@/screens/register/editing";
import classes from "@/screens/register/DocumentEditor.module.css";

interface DocumentEditorProps {
  text: string;
  onChange: (text: string) => void;
  mistakes: readonly Mistake[];
  /** Id of what lists the mistakes, for those who hear the page. */
  describedBy: string;
  /** Gets what puts the cursor at a mistake. */
  onReady: (goTo: (mistake: Mistake) => void) => void;
}

/**
 * A plain field for YAML with line numbers, and marks at the mistakes.
 *
 * The marks lie behind the field, letter under letter, so that every key, screen reader and
 * spelling tool works as in any field.
 */
export function DocumentEditor({ text, onChange, mistakes, describedBy, onReady }: DocumentEditorProps) {
  const gutter = useRef<HTMLDivElement>(null);
  const marks = useRef<HTMLPreElement>(null);
  const byLine = new Map(mistakes.map((mistake) => [mistake.line, mistake]));
  const lines = text.split("\n");
  return (
    <div className={classes.frame}>
      <div className={classes.gutter} ref={gutter} aria-hidden>
        {lines.map((_, at) => (
          <span
            key={at}
            className={byLine.has(at + 1) ? `${classes.number} ${classes.wrong}` : classes.number}
            title={byLine.get(at + 1)?.message}
          >
            {at + 1}
          </span>
        ))}
      </div>
      <div className={classes.paper}>
        <pre className={classes.marks} ref={marks} aria-hidden>
          {lines.map((line, at) => (
            <Line key={at} line={line} mistake={byLine.get(at + 1)} />
          ))}
        </pre>
        <textarea
          className={classes.text}
          aria-label="Document (YAML)"
          aria-invalid={mistakes.length > 0}
          aria-describedby={describedBy}
          value={text}
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          wrap="off"
          rows={Math.min(Math.max(lines.length + 1, 18), 32)}
          ref={(field) => {
            if (field !== null) onReady((mistake) => select(field, mistake));
          }}
          onChange={(event) => onChange(event.currentTarget.value)}
          onScroll={({ currentTarget }) => {
            const { scrollTop, scrollLeft } = currentTarget;
            if (gutter.current !== null) gutter.current.scrollTop = scrollTop;
            if (marks.current !== null) {
              marks.current.style.transform = `translate(${-scrollLeft}px, ${-scrollTop}px)`;
            }
          }}
        />
      </div>
    </div>
  );
}

function Line({ line, mistake }: { line: string; mistake: Mistake | undefined }) {
  if (mistake === undefined) return <span className={classes.line} data-exact>{line}</span>;
  const [before, word, behind] = splitAt(line, mistake.column);
  return (
    <span className={classes.line} data-mistake={mistake.code} data-exact>
      {before}
      <mark className={classes.mark} data-exact>{word === "" ? " " : word}</mark>
      {behind}
    </span>
  );
}

function select(field: HTMLTextAreaElement, { line, column }: Mistake): void {
  const start = offsetOf(field.value, line, column);
  const [, word] = splitAt(field.value.split("\n")[line - 1] ?? "", column);
  field.focus();
  field.setSelectionRange(start, start + word.length);
  field.scrollTop = Math.max(0, (line - 6) * 20);
}
