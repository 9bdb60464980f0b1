"""Tokenizers of every kind that Lockstep reads, made or trained with the `tokenizers` package, and
the texts on which they are compared with it."""
import json
import pathlib
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

from exported_files import fields

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+"
          r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{{N}}{{1,3}}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
FOREIGN = [
    "在他的诗里，春天像一条河。我们在北京吃饺子，喝茶，谈到深夜。", "人工智能（AI）在2024年发展迅速！", "吾輩は猫である。名前はまだ無い。カタカナとｶﾀｶﾅ、ＡＢＣ１２３。",
    "안녕하세요, 세계! 한국어 문장입니다.", "السَّلَامُ عَلَيْكُمْ، كيف حالك اليوم؟ ١٢٣٤٥",
    "في البدء كانت الكلمة.", "שָׁלוֹם עוֹלָם",
    "Привет, мир! Съешь ещё этих мягких французских булок.", "Ελληνικά ΣΟΦΟΣ ὀδυσσεύς",
    "हिन्दी में लिखा हुआ एक वाक्य। १२३", "ภาษาไทยไม่มีช่องว่าง",
    "Tiếng Việt có nhiều dấu: ở, ộ, ễ", "İstanbul'da ıslak ŞAPKA",
    "naïve café résumé Zoë Ångström ﬁne ½ ² ㎏ Ⅷ ...", "e\u0301\u0323 a\u030a o\u0308",
    "😀😃 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ❤️ ☕️ 1️⃣", "don't I'M we'LL they'Ve it'ſ 'tis 'S'S",
    "\u200b\u200d\ufeff\u00ad zero", "tabs\t\tand\r\nlines\n\n\n  \r\r x \u2028y\u3000z\u00a0",
    "x = [i**2 for i in range(10)]  # ok\n\treturn -1;",
    "http://example.com/?q=a%20b&c=1#d 1234567890 3.14e-10 $5,000", "\x00\x01\x7f\x85 control",
    "ﷺ Ǆ ẛ̣ Å", "", " ", "\n", "  lead and trail  ", "a" * 300, "word " * 100,
    "▁already▁marked ▁", "Ġbyte Ċlevel", "<|endoftext|>", "a <|endoftext|> b",
    "[MASK]x [MASK] <mask>  <s></s><unk><pad>",
]


def template(tokenizer, before, after):
    """A post-processor that puts these tokens before and after a text."""
    ids = [(t, tokenizer.token_to_id(t)) for t in {*before, *after}]
    return processors.TemplateProcessing(single=[*before, "$A", *after],
                                         pair=[*before, "$A", *after, "$B"], special_tokens=ids)


def trained(model, trainer, lines, normalizer=None, splitter=None):
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def bpe_trainer(size=2000, bytes_first=False, **options):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if bytes_first else []
    return trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False,
                               **options)


def edited(tokenizer, edit):
    """The tokenizer whose file `edit` has changed."""
    content = json.loads(tokenizer.to_str())
    edit(content)
    return Tokenizer.from_str(json.dumps(content))


def gpt2(folder, lines):
    """OpenAI's own, or where its files are not here, one like it."""
    files = [folder / "gpt2-encoder.json", folder / "gpt2-vocab.bpe"]
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if all(f.exists() for f in files):
        tokenizer = Tokenizer(models.BPE.from_file(*map(str, files)))
        tokenizer.pre_tokenizer = splitter
    else:
        tokenizer = trained(models.BPE(), bpe_trainer(5000, True), lines, None, splitter)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def roberta(folder, lines):
    tokenizer = gpt2(folder, lines)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>", "<pad>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
    return tokenizer


def bert(folder, lines, cased=False):
    vocabulary = folder / "bert-base-uncased-vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if vocabulary.exists():
        tokenizer = Tokenizer(models.WordPiece.from_file(str(vocabulary), unk_token="[UNK]"))
    else:
        tokenizer = trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(
            vocab_size=3000, special_tokens=special, show_progress=False), lines,
            normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer())
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]")))
    return tokenizer


def llama3(lines):
    splitter = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = trained(models.BPE(ignore_merges=True), bpe_trainer(4000, True), lines, None,
                        splitter)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        template(tokenizer, ["<|begin_of_text|>"], [])])

    def whole_words(content):
        # Tokens that no merges lead to: only ignore_merges finds them.
        vocabulary = content["model"]["vocab"]
        for word in ("ĠqqqQ", "zzzz", "èªŀ"):
            vocabulary[word] = max(max(vocabulary.values()), 5000) + 1

    return edited(tokenizer, whole_words)


def qwen2(lines):
    splitter = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = trained(models.BPE(), bpe_trainer(4000, True), lines, normalizers.NFC(), splitter)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def cl100k(lines):
    """As files made from tiktoken's have it: what is no match is removed."""
    splitter = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = trained(models.BPE(), bpe_trainer(1500, True), lines, None, splitter)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def o200k(lines, regex=O200K):
    splitter = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = trained(models.BPE(), bpe_trainer(1500, True), lines, None, splitter)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def llama2(lines, fuse_unk=True, byte_fallback=True):
    """BPE of whole texts, with bytes for what it does not know."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"]
    tokens = special + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    tokenizer = trained(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk,
                                   byte_fallback=byte_fallback),
                        bpe_trainer(2500, special_tokens=tokens, limit_alphabet=90), lines,
                        normalizer, pre_tokenizers.Metaspace(prepend_scheme="never"))
    tokenizer = edited(tokenizer, lambda c: c.update(
        pre_tokenizer=None,
        added_tokens=[t for t in c["added_tokens"] if t["content"] in special]))
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = template(tokenizer, ["<s>"], [])
    return tokenizer


def gemma(lines):
    tokenizer = llama2(lines)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False),
                          AddedToken("▁▁▁▁", normalized=False)])
    return tokenizer


def clip(lines):
    normalizer = normalizers.Sequence([
        normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    splitter = pre_tokenizers.Whitespace()
    tokenizer = trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
                        bpe_trainer(1500, special_tokens=["<unk>"], end_of_word_suffix="</w>"),
                        lines, normalizer, splitter)
    tokenizer.decoder = decoders.BPEDecoder()
    return tokenizer


def with_prefix(lines):
    tokenizer = trained(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
                        bpe_trainer(1500, special_tokens=["<unk>"],
                                    continuing_subword_prefix="##"),
                        lines, normalizers.NFKD(), pre_tokenizers.WhitespaceSplit())
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def falcon(lines):
    splitter = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False)])
    tokenizer = trained(models.BPE(), bpe_trainer(1500, True), lines, None, splitter)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def starcoder(lines):
    splitter = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer = trained(models.BPE(), bpe_trainer(1500, True), lines, None, splitter)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def unigram(lines, normalizer, scheme="always", split=True, byte_fallback=False):
    special = ["<pad>", "</s>", "<unk>"] + (
        [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    splitter = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer = trained(models.Unigram(), trainers.UnigramTrainer(
        vocab_size=2000, special_tokens=special, unk_token="<unk>", show_progress=False), lines,
        normalizer, splitter)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)

    def change(content):
        content["model"]["byte_fallback"] = byte_fallback
        content["added_tokens"] = content["added_tokens"][:3]
        content["pre_tokenizer"]["split"] = split

    tokenizer = edited(tokenizer, change)
    tokenizer.post_processor = template(tokenizer, [], ["</s>"])
    return tokenizer


def with_added_tokens(lines):
    """Added tokens of all kinds, in texts that are normalized."""
    tokenizer = trained(models.BPE(), bpe_trainer(1500, True), lines,
                        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
                        pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([
        AddedToken("[L]", lstrip=True, normalized=False),
        AddedToken("[R]", rstrip=True, normalized=False),
        AddedToken("[B]", lstrip=True, rstrip=True, special=True, normalized=False),
        AddedToken("Word", single_word=True), AddedToken("THE", normalized=True),
        AddedToken("the end", normalized=False), AddedToken("ﬁ", normalized=True),
        AddedToken("  ", normalized=False), AddedToken("é", single_word=True, normalized=False)])
    return tokenizer


def stripped(lines):
    tokenizer = unigram(lines, normalizers.Sequence([
        normalizers.Strip(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Nmt(),
        normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")]), scheme="first")
    tokenizer.add_tokens(["Citizen", AddedToken("king", single_word=True)])
    return tokenizer


def by_words(lines):
    """WordPiece of words and single punctuation marks, joined again with spaces."""
    tokenizer = trained(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12),
                        trainers.WordPieceTrainer(vocab_size=800, special_tokens=["[UNK]"],
                                                  show_progress=False),
                        lines, normalizers.NFKC(), pre_tokenizers.Sequence([
                            pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(),
                            pre_tokenizers.Split("e", "merged_with_next")]))
    return tokenizer


def charsmap(lines, folder):
    """The replacements of SentencePiece's nmt_nfkc, from a model that its package trains; None
    without the package."""
    try:
        import sentencepiece
    except ImportError:
        return None
    text = folder / "lines.txt"
    text.write_text("\n".join(line for line in lines if line.strip())[:300000])
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "nmt"), vocab_size=500, minloglevel=2,
        character_coverage=0.99)
    model = (folder / "nmt.model").read_bytes()
    spec = dict(fields(model))[3]  # normalizer_spec
    return dict(fields(spec))[2]  # precompiled_charsmap


def zoo(data, lines, folder, only=None):
    """Pairs of a name and a tokenizer; only the one of that name, if any."""
    files = data / "tokenizers"
    nfkc = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    made = {
        "gpt2": lambda: gpt2(files, lines), "roberta": lambda: roberta(files, lines),
        "bert": lambda: bert(files, lines), "bert_cased": lambda: bert(files, lines, True),
        "llama3": lambda: llama3(lines), "qwen2": lambda: qwen2(lines),
        "cl100k": lambda: cl100k(lines), "o200k": lambda: o200k(lines),
        "tekken": lambda: o200k(lines, TEKKEN),
        "llama2": lambda: llama2(lines),
        "llama2_unknown": lambda: llama2(lines, False, False),
        "llama2_fused": lambda: llama2(lines, True, False), "gemma": lambda: gemma(lines),
        "clip": lambda: clip(lines), "prefix": lambda: with_prefix(lines),
        "falcon": lambda: falcon(lines), "starcoder": lambda: starcoder(lines),
        "unigram": lambda: unigram(lines, nfkc),
        "unigram_whole": lambda: unigram(lines, nfkc, split=False, byte_fallback=True),
        "added": lambda: with_added_tokens(lines), "stripped": lambda: stripped(lines),
        "by_words": lambda: by_words(lines),
    }
    for name, make in made.items():
        if only in (None, name):
            yield name, make()
    if only not in (None, "t5"):
        return
    precompiled = charsmap(lines, folder)
    if precompiled is None:
        print("skipped: t5, whose table of replacements comes from the sentencepiece package")
        return
    yield "t5", unigram(lines, normalizers.Sequence([
        normalizers.Precompiled(precompiled), normalizers.Replace(Regex(" {2,}"), " ")]), "first")


def random_texts(count, seed):
    """Strings of characters from pools that splitters, normalizers and added tokens care about."""
    draw = random.Random(seed)
    pools = [
        [chr(c) for c in range(32, 127)], [chr(c) for c in range(0x250)],
        list("  \t\n\r\u00a0\u2003\u3000\u0085\u2028"),
        list("'’ſsStTmMdDrReElLvV ") + ["'s", "'LL", "'re"],
        [chr(c) for c in range(0x300, 0x370)] + list("aeiouAEÅé"), list("0123456789١२½²Ⅷ①"),
        [chr(c) for c in range(0x1F300, 0x1F700)] + ["\u200d", "\ufe0f", "\u20e3"],
        [chr(c) for c in range(0x4E00, 0x4F00)], [chr(c) for c in range(0x600, 0x700)],
        [chr(c) for c in range(0xAC00, 0xAD00)] + [chr(c) for c in range(0x1100, 0x1200)],
        list("!\"#$%&()*+,-./:;<=>?@[]^_`{|}~▁ĠĊ"), FOREIGN,
        ["<|endoftext|>", "[L]", "[R]", "[B]", "Word", "the", "THE", "the end", "<mask>", "[MASK]",
         "</s>", "<unk>", "<0x41>", "\n\n", "▁▁", "fi", "ﬁ", "é", "king", "word", " ", "  "],
        [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000],
    ]
    for _ in range(count):
        chosen = draw.sample(pools, draw.randint(1, 3))
        yield "".join(draw.choice(draw.choice(chosen)) for _ in range(draw.randint(0, 24)))


def all_characters():
    """Texts in which each code point stands after a letter, before one, and by itself."""
    for begin in range(0, 0x110000, 32):
        chars = [chr(c) for c in range(begin, begin + 32) if not 0xD800 <= c < 0xE000]
        yield "".join(f"x{c}y {c} {c}\u0301" for c in chars)


def real_lines(data):
    """Lines of the data that is here."""
    lines = []
    for name in ("tinyshakespeare/input.txt", "wikitext-2/valid.txt"):
        path = pathlib.Path(data) / name
        if path.exists():
            lines += path.read_text(encoding="utf-8").splitlines(keepends=True)
        else:
            print(f"skipped: {path} is not here")
    here = pathlib.Path(__file__).parent
    for path in sorted(here.glob("*.py")):
        lines += path.read_text(encoding="utf-8").splitlines(keepends=True)
    return lines
