// Folders of tokens, prepared by this program or written by others.

#include <zstd.h>

#include <cmath>
#include <future>
#include <map>
#include <span>

#include "base/digest.h"
#include "base/files.h"
#include "data/corpus.h"
#include "data/data_support.h"
#include "data/foreign_tokens.h"
#include "data/text_dataset.h"
#include "data/token_folder.h"
#include "support/byte_level_bpe.h"
#include "text/make_tokenizer.h"
#include "text/symbol_tokenizers.h"

namespace metaformer::test_token_folder {

namespace {

namespace fs = std::filesystem;

// Words of random letters, some of them not ASCII, with spaces in rows, line breaks and marks.
std::string random_text(std::uint64_t seed, std::size_t bytes, bool has_spaces = true) {
  const std::vector<std::string> words = {"the",       "Metric", "a",          "of",  "tokens",
                                          "äußere",    "自然",   "it's",       "x9",  "42",
                                          "Attention", "zebra",  "\U0001F600", "and", "learned"};
  const std::vector<std::string> gaps = {" ", " ", " ", " ", "  ", "\n", ".\n\n", ", ", "\t", " (", ") "};
  const Rng rng(seed, RandomPurpose::sampling);
  std::string text;
  for (std::uint64_t i = 0; text.size() < bytes; i += 2) {
    text += words[rng.below(i, words.size())];
    if (has_spaces) text += gaps[rng.below(i + 1, gaps.size())];
  }
  return text;
}

std::string json_line(const std::string& text) { return nlohmann::json({{"text", text}}).dump() + "\n"; }

TextDataConfig config_of(TokenizerOptions tokenizer, const fs::path& path = {}) {
  TextDataConfig config;
  config.tokenizer = std::move(tokenizer);
  if (!path.empty()) config.path = path.string();
  return config;
}

PrepareOptions options_of(const TextDataConfig& config, const fs::path& out, int threads = 2,
                          std::int64_t shard_tokens = 200'000) {
  PrepareOptions options{.corpora = {fs::path(*config.path)}, .config = config, .out = out, .threads = threads};
  options.config.path.reset();
  options.shard_tokens = shard_tokens;
  return options;
}

TextDataConfig prepared(const TextDataConfig& config, const fs::path& out) {
  prepare_tokens(options_of(config, out));
  TextDataConfig from_tokens;
  from_tokens.path = out.string();
  from_tokens.separate_documents = config.separate_documents;
  return from_tokens;
}

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != "lock") files[entry.path().filename().string()] = ::read_text(entry.path());
  return files;
}

void check_equal_rows(const TokenRows& rows, const TokenRows& expected) {
  CHECK(rows.ids == expected.ids);
  CHECK(rows.targets == expected.targets);
  CHECK(rows.target_bytes == expected.target_bytes);
  CHECK(rows.segments == expected.segments);
  CHECK(rows.target_count == expected.target_count);
}

// Both have the same tokens, documents, bytes and counts.
void check_equal(const TextDataset& found, const TextDataset& expected) {
  for (const auto split : {Split::train, Split::validation}) {
    REQUIRE(found.tokens(split).size() == expected.tokens(split).size());
    CHECK(found.tokens(split).all() == expected.tokens(split).all());
    CHECK(found.statistics(split)->to_json() == expected.statistics(split)->to_json());
    CHECK(found.unknown_characters(split) == expected.unknown_characters(split));
    const auto count = expected.tokens(split).size();
    if (found.has_documents()) CHECK(found.documents(split, 0, count) == expected.documents(split, 0, count));
    for (const std::int64_t step : {0, 1, 2})
      check_equal_rows(found.random_windows(split, 5, RandomPurpose::batches, step, 0, 8),
                       expected.random_windows(split, 5, RandomPurpose::batches, step, 0, 8));
    const auto last = found.consecutive_window_count(split) - 3;
    check_equal_rows(found.consecutive_windows(split, last, 3), expected.consecutive_windows(split, last, 3));
  }
}

std::string zstandard(const std::string& content) {
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  const auto size = ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 3);
  REQUIRE(ZSTD_isError(size) == 0);
  packed.resize(size);
  return packed;
}

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

std::string refusal_of(const TextDataConfig& config, ExitCode code = ExitCode::data) {
  return message_of(code, [&] {
    const auto text = load_text(config, true, nullptr);
    for (const auto& split : text.splits) split.tokens.all();
  });
}

}  // namespace

TEST_CASE("prepared tokens are those of the text in memory, for every tokenizer", "[token_folder]") {
  const TemporaryFolder folder;
  const OwnCache cache;
  static const TemporaryFolder of_tokenizer;  // the values below are made once
  static const auto bpe = of_tokenizer.write("bpe.json", RandomMerges(3, 200, "the tokns\n.,a").file().dump());
  const auto tokenizer = GENERATE_COPY(values<TokenizerOptions>(
      {ByteTokenizerOptions{}, CharacterTokenizerOptions{},
       WordTokenizerOptions{.vocabulary = 12, .whitespace = Whitespace::kept},
       WordTokenizerOptions{.vocabulary = 12, .whitespace = Whitespace::dropped},
       BpeTokenizerOptions{.vocabulary = 400, .whitespace = Whitespace::kept},
       UnigramTokenizerOptions{.vocabulary = 300, .lowercase = true, .whitespace = Whitespace::kept},
       PretrainedTokenizerOptions{.path = PathText(bpe.string())}}));
  CAPTURE(kind_of(tokenizer));
  SECTION("one long text, which is cut into chunks") {
    const auto text = random_text(1, 3'300'000);
    const auto config = config_of(tokenizer, folder.write("a.txt", text));
    const TextDataset in_memory(load_text(config, true, nullptr), config, 16);
    if (!is<UnigramTokenizerOptions>(tokenizer)) {
      const auto whole = in_memory.text().tokenizer->encode(split_corpus(load_corpus(config, true), config)[0]);
      CHECK(in_memory.tokens(Split::train).all() == whole);
    }
    const auto from_tokens = prepared(config, folder / "tokens");
    check_equal(TextDataset(load_text(from_tokens, true, nullptr), from_tokens, 16), in_memory);
  }
  SECTION("documents, of which one is cut by the split") {
    std::string lines;
    for (std::uint64_t i = 0; i < 300; ++i) lines += json_line(random_text(i, 1 + i * 37 % 8000));
    lines += json_line(random_text(7, 700'000));
    auto config = config_of(tokenizer, folder.write("a.jsonl", lines));
    config.separate_documents = true;
    const TextDataset in_memory(load_text(config, true, nullptr), config, 16);
    const auto from_tokens = prepared(config, folder / "tokens");
    check_equal(TextDataset(load_text(from_tokens, true, nullptr), from_tokens, 16), in_memory);
  }
}

TEST_CASE("prepared files do not depend on threads, and a second call changes nothing", "[token_folder]") {
  const TemporaryFolder folder;
  auto config = config_of(WordTokenizerOptions{.whitespace = Whitespace::kept});
  config.path = folder.write("texts/a.txt", random_text(2, 2'500'000)).parent_path().string();
  folder.write("texts/b.txt", random_text(3, 1'500'000));
  config.validation_path = folder.write("held.txt", random_text(4, 100'000)).string();
  prepare_tokens(options_of(config, folder / "one", 1));
  prepare_tokens(options_of(config, folder / "three", 3));
  const auto files = files_of(folder / "one");
  CHECK(files == files_of(folder / "three"));
  CHECK(files.contains("train-00002.tokens"));
  CHECK(files.contains("train-00002.bytes"));
  CHECK_FALSE(files.contains("unfinished.json"));
  prepare_tokens(options_of(config, folder / "one", 1));
  CHECK(files == files_of(folder / "one"));
  CHECK_NOTHROW(verify_token_folder(folder / "one"));
  config.validation_fraction = 0.2;
  CHECK_THAT(message_of(ExitCode::usage, [&] { prepare_tokens(options_of(config, folder / "one", 1)); }),
             ContainsSubstring("holds tokens of other files or options"));
}

TEST_CASE("an error in a chunk is reported, whatever other threads encode", "[token_folder]") {
  const TemporaryFolder folder;
  const auto text = random_text(2, 4'000'000);
  const auto other = std::make_shared<const CharacterTokenizer>(CharacterTokenizer::from_text("abc"));
  const auto path = folder.write("a.txt", text);
  CHECK_THAT(message_of(ExitCode::data, [&] { load_text(config_of(CharacterTokenizerOptions{}, path), true, other); }),
             ContainsSubstring("is not among the 3 this model knows"));
}

TEST_CASE("a text without spaces is cut between characters where no token changes", "[token_folder]") {
  const TemporaryFolder folder;
  const auto text = random_text(9, 2'300'000, /*has_spaces=*/false);
  const RandomMerges merges(5, 300, "thetoknslar");
  auto file = merges.file();
  const nlohmann::json words = {
      {"type", "Split"}, {"pattern", {{"Regex", "[a-z]{1,40}|[^a-z]+"}}}, {"behavior", "Isolated"}, {"invert", false}};
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", {words, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto bpe = folder.write("bpe.json", file.dump());
  const auto config =
      config_of(PretrainedTokenizerOptions{.path = PathText(bpe.string())}, folder.write("a.txt", text));
  const auto encoded = load_text(config, true, nullptr);
  CHECK(encoded.splits[0].tokens.all() ==
        encoded.tokenizer->encode(split_corpus(load_corpus(config, true), config)[0]));
}

TEST_CASE("damaged, cut off and unfinished folders of tokens are refused", "[token_folder]") {
  const TemporaryFolder folder;
  const auto config = config_of(ByteTokenizerOptions{}, folder.write("a.txt", random_text(1, 900'000)));
  const auto from_tokens = prepared(config, folder / "tokens");
  const auto damage = [&](const std::string& name, auto change) {
    const auto path = folder / ("tokens/" + name);
    const auto intact = ::read_text(path);
    auto content = intact;
    change(content);
    folder.write("tokens/" + name, content);
    const auto message = refusal_of(from_tokens);
    CHECK_THAT(message, ContainsSubstring(path.string()));
    CHECK(message.find('\n') == std::string::npos);
    folder.write("tokens/" + name, intact);
    return message;
  };
  CHECK_THAT(damage("train-00000.tokens", [](auto& bytes) { bytes[123'456] ^= 1; }),
             ContainsSubstring("the bytes from 122880 on do not have their checksum"));
  CHECK_THAT(damage("train-00000.tokens", [](auto& bytes) { bytes.pop_back(); }), ContainsSubstring("cut off"));
  CHECK_THAT(damage("manifest.json", [](auto& bytes) { bytes.resize(bytes.size() / 2); }),
             ContainsSubstring("cut off or damaged"));
  CHECK_THAT(damage("manifest.json", [](auto& bytes) { bytes[bytes.find("\"width\":2") + 8] = '4'; }),
             ContainsSubstring("damaged"));
  CHECK_THAT(
      damage("tokenizer.json", [](auto& bytes) { bytes = CharacterTokenizer::from_text("ab").to_json().dump(); }),
      ContainsSubstring("not the tokenizer of these tokens"));
  fs::rename(folder / "tokens/train-00000.tokens", folder / "elsewhere");
  CHECK_THAT(refusal_of(from_tokens), ContainsSubstring("train-00000.tokens: no such file"));
  fs::rename(folder / "elsewhere", folder / "tokens/train-00000.tokens");
  CHECK_NOTHROW(verify_token_folder(folder / "tokens"));
  CHECK_THAT(message_of(ExitCode::data, [&] { verify_token_folder(folder / "nowhere"); }),
             ContainsSubstring("nowhere: no such folder"));
  CHECK_THAT(message_of(ExitCode::data, [&] { verify_token_folder(folder.path()); }),
             ContainsSubstring("no folder of tokens"));
  folder.write("tokens/validation-00000.documents", "12345678");
  CHECK_THAT(message_of(ExitCode::data, [&] { verify_token_folder(folder / "tokens"); }),
             ContainsSubstring("validation-00000.documents: damaged"));
  fs::rename(folder / "tokens/manifest.json", folder / "tokens/unfinished.json");
  CHECK_THAT(refusal_of(from_tokens), ContainsSubstring("its preparation is not finished"));
  CHECK_THAT(message_of(ExitCode::usage,
                        [&] { prepare_tokens(options_of(config, folder.write("other/notes.md", "a").parent_path())); }),
             ContainsSubstring("holds notes.md"));
}

TEST_CASE("tokens of another tokenizer, and keys without effect on tokens, are refused", "[token_folder]") {
  const TemporaryFolder folder;
  const auto config = config_of(ByteTokenizerOptions{}, folder.write("a.txt", random_text(1, 50'000)));
  auto from_tokens = prepared(config, folder / "tokens");
  const auto other = std::make_shared<const CharacterTokenizer>(CharacterTokenizer::from_text("abc"));
  CHECK_THAT(message_of(ExitCode::data, [&] { load_text(from_tokens, true, other); }),
             ContainsSubstring("of another tokenizer (byte, vocabulary 256) than the checkpoint's (character, "
                               "vocabulary 3)"));
  CHECK_NOTHROW(load_text(from_tokens, true, std::make_shared<const ByteTokenizer>()));
  auto of_weights = from_tokens;
  of_weights.tokenizer = WordTokenizerOptions{};
  CHECK_NOTHROW(load_text(of_weights, true, std::make_shared<const ByteTokenizer>()));
  const auto refused_key = [&](auto change) {
    auto changed = from_tokens;
    change(changed);
    return refusal_of(changed, ExitCode::usage);
  };
  CHECK_THAT(refused_key([](auto& keys) { keys.text_field = "body"; }), ContainsSubstring("data.text_field: has no"));
  CHECK_THAT(refused_key([](auto& keys) { keys.validation_fraction = 0.2; }),
             ContainsSubstring("data.validation_fraction: has no effect"));
  CHECK_THAT(
      refused_key([](auto& keys) { keys.tokenizer = WordTokenizerOptions{}; }),
      ContainsSubstring("data.tokenizer: has no effect") && ContainsSubstring("leave it out, or set it to character"));
}

TEST_CASE("texts compressed by Zstandard or gzip are read like others, and cut off ones are refused", "[text_files]") {
  const TemporaryFolder folder;
  const auto text = random_text(6, 2'500'000);
  CHECK(read_text_files(folder.write("a.txt.zst", zstandard(text)), {}).text == text);
  CHECK(read_text_files(folder.write("a.txt.gz", gzip(text)), {}).text == text);
  CHECK(read_text_files(folder.write("b", zstandard(text) + zstandard("end")), {}).text == text + "end");
  CHECK(read_text_files(folder.write("c.jsonl.zst", zstandard(json_line(text) + json_line("b"))), {}).text ==
        text + "\nb");
  auto cut = zstandard(text);
  cut.resize(cut.size() - 7);
  CHECK_THAT(message_of(ExitCode::data, [&] { read_text_files(folder.write("d.txt.zst", cut), {}); }),
             ContainsSubstring("cannot be unpacked as Zstandard: it ends too early"));
  CHECK(rows_of(read_labelled_table(folder.write("t.csv.zst", zstandard("text,label\na,b\n")), {})) == Texts{"2 b a"});
}

TEST_CASE("characters that lie across the pieces of a file are read whole", "[text_files]") {
  const TemporaryFolder folder;
  for (std::size_t before = 0; before < 5; ++before) {
    const auto text = std::string((1 << 20) - before, 'a') + "\U0001F600ä\n" + std::string(1 << 20, 'b') + "ß";
    CHECK(read_text_files(folder.write("a.txt", text), {}).text == text);
    CHECK_THAT(message_of(ExitCode::data, [&] { read_text_files(folder.write("b.txt", text + "\xC3"), {}); }),
               ContainsSubstring(fmt::format("byte 0xc3 at offset {} (line 2)", text.size())));
  }
}

TEST_CASE("a large text is encoded into the cache, once", "[token_folder]") {
  const TemporaryFolder folder;
  const OwnCache cache;
  const auto config = config_of(CharacterTokenizerOptions{}, folder.write("a.txt", random_text(1, 50'000)));
  const TextDataset in_memory(load_text(config, true, nullptr), config, 8);
  CHECK(cache.files().empty());
  const TextDataset large(load_text(config, true, nullptr, /*largest_in_memory=*/10'000), config, 8);
  check_equal(large, in_memory);
  CHECK_FALSE(large.tokens(Split::train).is_in_memory());
  CHECK(large.text().description.at("sha256") == in_memory.text().description.at("sha256"));
  const auto files = cache.files();
  CHECK_FALSE(files.empty());
  load_text(config, true, nullptr, 10'000);
  CHECK(cache.files() == files);
  const OwnCache another;
  const auto load = [&] { return load_text(config, true, nullptr, 10'000).splits[0].tokens.all(); };
  auto first = std::async(std::launch::async, load), second = std::async(std::launch::async, load);
  CHECK(first.get() == second.get());  // one process of a group waits for the other
  auto without_cache = config;
  without_cache.cache = false;
  CHECK(load_text(without_cache, true, nullptr, 10'000).splits[0].tokens.is_in_memory());
}

TEST_CASE("a mixture draws windows from its corpora in proportion to their weights", "[token_folder]") {
  const TemporaryFolder folder;
  const auto first = prepared(config_of(ByteTokenizerOptions{}, folder.write("a.txt", std::string(9000, 'a'))),
                              folder / "first"),
             second = prepared(config_of(ByteTokenizerOptions{}, folder.write("b.txt", std::string(500, 'b'))),
                               folder / "second");
  TextDataConfig config;
  config.mixture = {*first.path + "=1", *second.path + "=3"};
  const TextDataset dataset(load_text(config, true, nullptr), config, 20);
  CHECK(dataset.tokens(Split::train).size() == 8100 + 450);
  CHECK(dataset.tokens(Split::validation).size() == 900 + 50);
  CHECK(dataset.statistics(Split::train)->count_of('b') == 450);
  constexpr std::int64_t rows = 4000;
  const auto windows = dataset.random_windows(Split::train, 1, RandomPurpose::batches, 0, 0, rows);
  std::int64_t from_second = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto ids = std::span(windows.ids).subspan(row * 20, 20);
    CHECK(std::ranges::count(ids, ids[0]) == 20);  // a window is from one corpus
    from_second += ids[0] == 'b';
  }
  CHECK(std::abs(static_cast<double>(from_second) - 0.75 * rows) < 5 * std::sqrt(rows * 0.75 * 0.25));
  const auto starts = dataset.random_starts(Split::train, 1, RandomPurpose::batches, 0, 0, 10);
  CHECK(dataset.random_starts(Split::train, 1, RandomPurpose::batches, 0, 7, 3) ==
        std::vector(starts.begin() + 7, starts.end()));
  const auto other =
      prepared(config_of(CharacterTokenizerOptions{}, folder.write("c.txt", std::string(500, 'c'))), folder / "third");
  config.mixture = {*first.path + "=1", *other.path + "=3"};
  CHECK_THAT(message_of(ExitCode::data, [&] { load_text(config, true, nullptr); }),
             ContainsSubstring("a mixture needs one tokenizer"));
}

TEST_CASE("tokens of nanoGPT and llm.c are read", "[foreign_tokens]") {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> train = {1, 2, 3, 1, 2, 3, 4, 0}, validation = {4, 3, 2};
  const std::vector<std::int32_t> expected(train.begin(), train.end());
  folder.write("nano/train.bin", bytes_of(train));
  folder.write("nano/val.bin", bytes_of(validation));
  auto config = config_of(ByteTokenizerOptions{}, folder / "nano");
  auto text = load_text(config, true, nullptr);
  CHECK(text.splits[0].tokens.all() == expected);
  CHECK(text.splits[1].tokens.all() == std::vector<std::int32_t>{4, 3, 2});
  config.tokenizer = CharacterTokenizerOptions{};
  CHECK_THAT(refusal_of(config, ExitCode::usage), ContainsSubstring("has tokens without their tokenizer; name it"));
  // pickle.dumps({"vocab_size": 5, "itos": {0: "\n", 1: "a", 2: "b", 3: "c", 4: "d"}}), protocol 4
  folder.write("nano/meta.pkl",
               std::string("\x80\x04\x95=\0\0\0\0\0\0\0}\x94(\x8c\nvocab_size\x94K\x05\x8c\x04itos\x94}"
                           "\x94(K\0\x8c\x01\n\x94K\x01\x8c\x01"
                           "a\x94K\x02\x8c\x01"
                           "b\x94K\x03\x8c\x01"
                           "c\x94K\x04\x8c\x01"
                           "d\x94uu.",
                           72));
  text = load_text(config, true, nullptr);
  CHECK(text.tokenizer->decode(text.splits[0].tokens.all()) == "abcabcd\n");
  folder.write("nano/val.bin", bytes_of(std::vector<std::uint16_t>{1, 5}));
  CHECK_THAT(refusal_of(config), Mentions("val.bin|5 among its entries|ids 0 ... 4"));

  std::vector<std::int32_t> header(256);
  const auto llm = [&](std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& ids) {
    header[0] = magic, header[1] = version, header[2] = count;
    return bytes_of(header) + ids;
  };
  folder.write("llm/tiny_val.bin", llm(20240520, 1, 3, bytes_of(validation)));
  folder.write("llm/tiny_train_000002.bin", llm(20240520, 1, 3, bytes_of(validation)));
  folder.write("llm/tiny_train_000001.bin", llm(20240520, 1, 8, bytes_of(train)));
  auto of_llm = config_of(ByteTokenizerOptions{}, folder / "llm");
  auto both = expected;
  both.insert(both.end(), {4, 3, 2});
  CHECK(load_text(of_llm, true, nullptr).splits[0].tokens.all() == both);
  of_llm.path =
      folder.write("llm/wide.bin", llm(20240801, 7, 4, bytes_of(std::vector<std::uint32_t>{7, 8, 9, 10}))).string();
  of_llm.validation_fraction = 0.5;
  text = load_text(of_llm, true, nullptr);
  CHECK(text.splits[0].tokens.all() == std::vector<std::int32_t>{7, 8});
  CHECK(text.splits[1].tokens.all() == std::vector<std::int32_t>{9, 10});
  of_llm.separate_documents = true;
  CHECK_THAT(refusal_of(of_llm, ExitCode::usage), ContainsSubstring("data.separate_documents"));
  of_llm.separate_documents = false;
  folder.write("llm/wide.bin", llm(20240801, 7, 5, bytes_of(std::vector<std::uint32_t>{7, 8, 9, 10})));
  CHECK_THAT(refusal_of(of_llm), Mentions("wide.bin|cut off or damaged"));
  folder.write("llm/wide.bin", llm(20240520, 2, 3, bytes_of(validation)));
  CHECK_THAT(refusal_of(of_llm), ContainsSubstring("version 2; expected 1"));
  folder.write("llm/wide.bin", "abc");
  CHECK_THAT(refusal_of(of_llm), ContainsSubstring("no whole number of ids"));
}

TEST_CASE("tokens of Megatron-LM are read with their documents", "[foreign_tokens]") {
  const TemporaryFolder folder;
  const auto index = [](std::uint8_t kind, std::vector<std::int32_t> lengths,
                        const std::vector<std::int64_t>& documents, std::int64_t width) {
    std::vector<std::int64_t> pointers = {0};
    for (const auto length : lengths) pointers.push_back(pointers.back() + length * width);
    pointers.pop_back();
    return std::string("MMIDIDX\0\0", 9) + bytes_of(std::vector<std::uint64_t>{1}) +
           bytes_of(std::vector<std::uint8_t>{kind}) +
           bytes_of(std::vector<std::uint64_t>{lengths.size(), documents.size()}) + bytes_of(lengths) +
           bytes_of(pointers) + bytes_of(documents);
  };
  const std::vector<std::uint16_t> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  folder.write("m.bin", bytes_of(ids));
  folder.write("m.idx", index(8, {2, 3, 1, 4}, {0, 1, 3, 4}, 2));
  auto config = config_of(ByteTokenizerOptions{}, folder / "m.bin");
  config.separate_documents = true;
  config.validation_fraction = 0.2;
  const TextDataset dataset(load_text(config, true, nullptr), config, 1);
  CHECK(dataset.tokens(Split::train).all() == std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(dataset.documents(Split::train, 0, 8) == std::vector<std::int32_t>{0, 0, 1, 1, 1, 1, 2, 2});
  CHECK(dataset.documents(Split::validation, 0, 2) == std::vector<std::int32_t>{0, 0});
  CHECK(dataset.statistics(Split::train) == nullptr);
  folder.write("m.idx", index(8, {2, 3, 1, 5}, {0, 1, 3, 4}, 2));
  CHECK_THAT(refusal_of(config), Mentions("m.bin|has 20 bytes|22"));
  folder.write("m.idx", index(6, {2, 3, 1, 4}, {0, 1, 3, 4}, 2));
  CHECK_THAT(refusal_of(config), ContainsSubstring("ids have the type 6"));
  auto cut = index(8, {2, 3, 1, 4}, {0, 1, 3, 4}, 2);
  cut.resize(cut.size() - 1);
  folder.write("m.idx", cut);
  CHECK_THAT(refusal_of(config), ContainsSubstring("m.idx: cut off"));
}

}  // namespace metaformer::test_token_folder
