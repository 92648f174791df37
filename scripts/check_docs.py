#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every C++ block of README.md and docs/ must stand, line for line, in a file that a meson.build compiles.

The file is named in an HTML comment on the line before the block:  <!-- examples/010_tensor.cpp -->
Indentation that all lines share does not count. A fence of none of the languages below is C++, also one that names no
language. Local links must lead somewhere. The table of a backend's capabilities is that of their headers; --fix writes it.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OTHER_LANGUAGES = ("sh", "text", "json", "meson", "cmake", "python", "make", "js")
SOURCES = (".cpp", ".hpp", ".inl", ".cu", ".cuh")
FENCE = re.compile(r"[\s>*+-]*(`{3,}(?=[^`]*$)|~{3,})\s*\{?\.?([^\s}]*)")  # also in quotes and lists


def compiled(name):
    """Whether the meson.build nearest above the file lists it, with or without its suffix."""
    file = (ROOT / name).resolve()
    if file.suffix not in SOURCES or ROOT not in file.parents or not file.exists():
        return False
    build = next(folder / "meson.build" for folder in file.parents if (folder / "meson.build").exists())
    listed = re.findall(r"'([^']*)'", re.sub(r"^\s*#.*", "", build.read_text(), flags=re.M))
    path = file.relative_to(build.parent)
    return path.as_posix() in listed or path.with_suffix("").as_posix() in listed


def dedent(lines):
    margin = min((len(l) - len(l.lstrip()) for l in lines if l.strip()), default=0)
    return [l[margin:].rstrip() for l in lines]


def occurs(block, lines):
    block = dedent(block)
    for start in range(len(lines) - len(block) + 1):
        if dedent(lines[start:start + len(block)]) == block:
            return True
    return False


def capabilities():
    """Rows of the concepts' table, of the comments before them."""
    headers = "".join((ROOT / f"include/tutti/comm/{name}.hpp").read_text()
                      for name in ("capabilities", "wait_capabilities", "thread_capabilities"))
    rows = ["| concept of `comm` | what it has |", "| --- | --- |"]
    for comment, concept in re.findall(r"((?:///.*\n)+)template <class B>\nconcept (\w+) =", headers):
        rows.append(f"| `{concept}` | " + " ".join(line[3:].strip() for line in comment.splitlines()) + " |")
    return "\n".join(rows)


def check_capabilities(fix):
    """The error, if any."""
    page = ROOT / "docs/concepts/backend.md"
    if not page.exists():  # a tree of a test
        return []
    begin, end = "<!-- capabilities -->\n", "\n<!-- end of capabilities -->"
    text = page.read_text()
    before, rest = text.split(begin)
    found, after = rest.split(end) if end in rest else ("", rest.split(end.strip())[1])
    if found == capabilities():
        return []
    if not fix:
        return [f"{page.relative_to(ROOT)}: the table of capabilities is not that of their headers; run with --fix"]
    page.write_text(before + begin + capabilities() + end + after)
    return []


def main():
    errors, count = check_capabilities("--fix" in sys.argv[1:]), 0
    pages = [p for p in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))] if p.exists()]
    for page in pages:
        where = page.relative_to(ROOT).as_posix()
        lines = page.read_text().splitlines()
        number = 0
        while number < len(lines):
            fence = FENCE.match(lines[number])
            if not fence:
                for target in re.findall(r"\]\(([^)#\s]+)", lines[number]):
                    if "://" not in target and not (page.parent / target).exists():
                        errors.append(f"{where}:{number + 1}: the link to {target} leads nowhere")
                number += 1
                continue
            end = number + 1
            while end < len(lines) and not re.fullmatch(rf"[\s>]*{fence[1]}{fence[1][0]}*\s*", lines[end]):
                end += 1
            if end == len(lines):
                errors.append(f"{where}:{number + 1}: this block has no end")
            if fence[2] not in OTHER_LANGUAGES:
                count += 1
                block = lines[number + 1:end]
                named = re.match(r"[\s>]*<!--\s*(\S+)\s*-->", lines[number - 1] if number else "")
                if not named:
                    errors.append(f"{where}:{number + 1}: C++ block without <!-- path of the compiled file --> before it; "
                                  f"a block of another language names it: {', '.join(OTHER_LANGUAGES)}")
                elif not compiled(named[1]):
                    errors.append(f"{where}:{number}: {named[1]} is not a source that a meson.build of the repository names")
                elif not any(line.strip() for line in block):
                    errors.append(f"{where}:{number + 1}: the block is empty")
                elif not occurs(block, (ROOT / named[1]).read_text().splitlines()):
                    errors.append(f"{where}:{number + 1}: the block does not stand in {named[1]}")
            number = end + 1
    print("\n".join(errors) if errors else f"{count} C++ blocks in {len(pages)} pages, all compiled")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
