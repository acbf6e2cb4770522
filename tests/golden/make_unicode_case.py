"""Writes engine/base/unicode_case.inc from Python's Unicode tables: runs of characters with one distance to their lower or
upper case. Run by hand, from the root of the tree:  python3 tests/golden/make_unicode_case.py"""
import unicodedata


def runs(convert):
    distance = {}
    for code in range(0x41, 0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        text = convert(chr(code))
        if len(text) == 1 and ord(text) != code:
            distance[code] = ord(text) - code
    done, out = set(), []
    for code, delta in distance.items():
        if code in done:
            continue
        longest = None
        for step in (1, 2):  # alphabets, and those where upper and lower case alternate
            last = code
            while distance.get(last + step) == delta and last + step not in done:
                last += step
            count = (last - code) // step + 1
            if longest is None or count > longest[0]:
                longest = (count, step, last)
        _, step, last = longest
        done.update(range(code, last + 1, step))
        out.append((code, last, step, delta))
    return out


def table(name, entries):
    text, line = f'constexpr CaseRun {name}[] = {{\n', '   '
    for entry in entries:
        item = ' {0x%X, 0x%X, %d, %d},' % entry
        if len(line) + len(item) > 105:
            text, line = text + line + '\n', '   '
        line += item
    return text + line + '\n};\n'


HEAD = f'''// Simple case mappings of Unicode {unicodedata.unidata_version}: {{first, last, step, what is added}}. Of characters whose mapping is one
// character; made by tests/golden/make_unicode_case.py.
'''

if __name__ == '__main__':
    with open('engine/base/unicode_case.inc', 'w', encoding='ascii') as file:
        file.write(HEAD + table('kToLower', runs(str.lower)) + table('kToUpper', runs(str.upper)))
