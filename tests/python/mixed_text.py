"""Text of every kind for tokenizers: English, code, digits, many scripts, combining marks, odd white space, control characters,
contractions, special tokens. It depends only on the arguments."""
import random

SCRIPTS = [(0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF),
           (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
           (0x1F300, 0x1FAFF), (0x2000, 0x206F), (0x2190, 0x2BFF), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF),
           (0x31350, 0x323AF), (0x10000, 0x10FFF)]
SPACES = [" ", "  ", "   ", "    ", "\n", "\n\n", "\r\n", "\r", "\t", "\v", "\f", " \n", "\n ", "\x1c", "\x85", "\xa0",
          "\u1680", "\u180e", "\u2003", "\u2028", "\u2029", "\u200b", "\u202f", "\u205f", "\u3000", "\ufeff"]
MARKS = [chr(point) for point in range(0x300, 0x370)] + ["\u200d", "\ufe0f", "\u20e3", "\u0e31", "\u094d"]
CONTROLS = [chr(point) for point in range(0x20)] + ["\x7f", "\x80", "\x9f", "\ufdd0", "\ufffd", "\uffff", "\U0010ffff"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'lL", "'D", "\u2019s",
                "'\u017f", "'\u212a", "''", "'"]
CODE = ["def f(x):\n    return x**2 + 1\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b[i];\n}\n",
        "<div class=\"a b\">&nbsp;</div>", "x = {'a': 1, \"b\": [2, 3]}  # comment\n", "\tif (!p) return NULL;\n\n\n",
        "https://example.com/a?b=c&d=%20", "0x1F600 3.14159 1e-9 1,000,000", "\\n\\t\\u00e9", "\\section{A}"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|endoftext", "|>", "<|a|>", "<s>", "<|"]
SIGNS = "!?.,;:-_()[]{}<>@#$%^&*+=/|~`'\""


def any_character(draw):
    point = draw.randrange(0x110000)
    return "\ufffd" if 0xD800 <= point < 0xE000 else chr(point)


def in_script(draw, length):
    first, last = draw.choice(SCRIPTS)
    return "".join(chr(draw.randint(first, last)) for _ in range(length))


def mixed_text(size, seed, lines):
    """At least `size` bytes of UTF-8. `lines` are English."""
    draw = random.Random(seed)
    makers = {
        lambda: draw.choice(lines): 35,
        lambda: in_script(draw, draw.randint(1, 8)): 15,
        lambda: draw.choice(SPACES) * draw.randint(1, 3): 10,
        lambda: draw.choice(CODE): 6,
        lambda: str(draw.randrange(10 ** draw.randint(1, 15))): 8,
        lambda: draw.choice("aeinouAE") + "".join(draw.choices(MARKS, k=draw.randint(1, 3))): 4,
        lambda: draw.choice(CONTROLS): 4,
        lambda: draw.choice(["I", "don", "you", "X", "a1", "\u00e9"]) + draw.choice(CONTRACTIONS) + draw.choice(["", "s", "t", " "]): 6,
        lambda: draw.choice(SPECIAL): 2,
        lambda: "".join(draw.choices(SIGNS, k=draw.randint(1, 6))): 3,
        lambda: "".join(in_script(draw, 1) for _ in range(draw.randint(1, 5))): 4,
        lambda: any_character(draw): 2,
        lambda: draw.choice(["a", "\u4e00", " ", "\n", "ab"]) * draw.randint(50, 400): 1,
    }
    parts, length = [], 0
    while length < size:
        for make in draw.choices(list(makers), list(makers.values()), k=1000):
            parts.append(make() + draw.choice(["", " "]))
            length += len(parts[-1].encode())
    return "".join(parts)


def characters():
    """Every code point below U+20000 and from U+2A000 to U+33000, and every 16th of the others."""
    points = [*range(0xD800), *range(0xE000, 0x20000), *range(0x20000, 0x2A000, 16), *range(0x2A000, 0x33000),
              *range(0x33000, 0x110000, 16)]
    return [chr(point) for point in points]


def every_character():
    """Each of these characters beside a letter, a digit, a space, an apostrophe and the end of a line."""
    return "".join(f"a{c}1{c} {c}'{c}\n" for c in characters())
