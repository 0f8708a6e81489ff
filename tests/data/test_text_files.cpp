// Texts for language models: files, gzipped files, JSON lines, folders of them, a held-out file.

#include "data/corpus.h"
#include "data/data_support.h"
#include "data/text_dataset.h"

namespace metaformer {

namespace {

const std::string json_lines =
    "{\"text\": \"Erster.\\n\"}\n\n{\"id\": 3, \"text\": \"Zweiter \\u00e4.\"}\r\n{\"text\": \"\"}\n";

std::string text_refusal(const std::filesystem::path& path, const TextDataConfig& config = {}) {
  const auto [code, message] = failure([&] { read_text_files(path, config); });
  CHECK(code == ExitCode::data);
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

}  // namespace

TEST_CASE("a plain text is read as it is, gzipped or not", "[text_files]") {
  const TemporaryFolder folder;
  const std::string text = "one\r\n\ntwo \t";
  const auto plain = read_text_files(folder.write("a.txt", text), {});
  const auto gzipped = read_text_files(folder.write("a.txt.gz", gzip(text)), {});
  const auto unnamed = read_text_files(folder.write("corpus", gzip(text)), {});
  for (const auto& files : {plain, gzipped, unnamed}) {
    CHECK(files.text == text);
    CHECK(files.is_one_text);
    CHECK_FALSE(files.has_json_lines);
    CHECK_FALSE(files.description.contains("documents"));
  }
  CHECK(plain.description.at("sha256") != gzipped.description.at("sha256"));
}

TEST_CASE("a byte order mark at the start of a file is no part of the text", "[text_files]") {
  const std::string mark = "\xEF\xBB\xBF";
  const TemporaryFolder folder;
  TextDataConfig config;
  if (GENERATE(false, true)) config.tokenizer = ByteTokenizerOptions{};
  CHECK(read_text_files(folder.write("a.txt", mark + "one " + mark + "two"), config).text == "one " + mark + "two");
  CHECK(read_text_files(folder.write("b.txt.gz", gzip(mark + "one")), config).text == "one");
  CHECK(read_text_files(folder.write("c.jsonl", mark + json_lines), config).text == "Erster.\n\nZweiter ä.");
  CHECK(read_text_files(folder.path(), config).text == "one " + mark + "two\none\nErster.\n\nZweiter ä.");
  CHECK_THAT(text_refusal(folder.write("d.txt", mark), config), ContainsSubstring("d.txt: the corpus is empty"));
  CHECK(read_text_files(folder.write("a.txt", "one"), config).description.at("sha256") !=
        read_text_files(folder.write("a.txt", mark + "one"), config).description.at("sha256"));
}

TEST_CASE("JSON lines are documents with a line break between them", "[text_files]") {
  const TemporaryFolder folder;
  const auto name = GENERATE(as<std::string>(), "a.jsonl", "a.json", "A.NDJSON", "a.jsonl.gz", "named.otherwise");
  const auto path = name.ends_with("gz") ? folder.write(name, gzip(json_lines)) : folder.write(name, json_lines);
  TextDataConfig config;
  if (name == "named.otherwise") config.format = TableFormat::jsonl;
  const auto files = read_text_files(path, config);
  CHECK(files.text == "Erster.\n\nZweiter ä.");
  CHECK(files.description.at("documents") == 2);
  CHECK(files.description.at("malformed") == 0);
  config.text_field = "content";
  CHECK_THAT(text_refusal(path, config),
             ContainsSubstring("no object has a member 'content'; the first, on line 1, has 'text'"));
  config.format = TableFormat::text;
  if (!name.ends_with("gz")) CHECK(read_text_files(path, config).text == json_lines);
}

TEST_CASE("a folder is all of its files in the order of their paths", "[text_files]") {
  const TemporaryFolder folder;
  folder.write("b.txt", "b");
  folder.write("a/z.txt", "az");
  folder.write("a.txt", "a");
  folder.write("c/deep/d.jsonl", "{\"text\": \"d1\"}\n{\"text\": \"d2\"}\n");
  folder.write("e.text.gz", gzip("e"));
  folder.write(".hidden.txt", "hidden");
  folder.write(".git/f.txt", "hidden");
  folder.write("notes.pdf", "%PDF");
  std::filesystem::create_directory_symlink(folder.path(), folder / "loop");
  const auto files = read_text_files(folder.path(), {});
  CHECK(files.text == "a\naz\nb\nd1\nd2\ne");
  CHECK(files.description.at("files") == 5);
  CHECK(files.description.at("documents") == 6);
  CHECK_FALSE(files.is_one_text);
  TextDataConfig all_text;
  all_text.format = TableFormat::text;
  CHECK_THAT(read_text_files(folder.path(), all_text).text, ContainsSubstring("e\n%PDF") || ContainsSubstring("%PDF"));
}

TEST_CASE("the digest of a folder follows every file and its name", "[text_files]") {
  const TemporaryFolder folder;
  folder.write("a.txt", "a");
  folder.write("b.txt", "b");
  const auto digest = [&] { return read_text_files(folder.path(), {}).description.at("sha256").get<std::string>(); };
  const auto first = digest();
  CHECK(digest() == first);
  folder.write("b.txt", "c");
  const auto changed = digest();
  CHECK(changed != first);
  std::filesystem::rename(folder / "b.txt", folder / "c.txt");
  CHECK(digest() != changed);
}

TEST_CASE("texts that cannot be read are errors that name file and line", "[text_files]") {
  const TemporaryFolder folder;
  CHECK_THAT(text_refusal(folder / "none.txt"), ContainsSubstring("none.txt: no such file"));
  CHECK_THAT(text_refusal(folder.path()), ContainsSubstring("holds no texts"));
  CHECK_THAT(text_refusal(folder.write("empty.txt", "")), ContainsSubstring("empty.txt: the corpus is empty"));
  CHECK_THAT(text_refusal(folder.write("latin.txt", "a\nb\ncaf\xe9")),
             ContainsSubstring("latin.txt: not valid UTF-8: byte 0xe9 at offset 7 (line 3)"));
  std::filesystem::remove(folder / "empty.txt");
  folder.write("a.txt", "fine");
  CHECK_THAT(text_refusal(folder.path()),
             ContainsSubstring("latin.txt: not valid UTF-8: byte 0xe9 at offset 7 (line 3)"));
  const auto gzipped = gzip(std::string(1000, 'x'));
  CHECK_THAT(text_refusal(folder.write("cut.txt.gz", gzipped.substr(0, gzipped.size() - 3))),
             ContainsSubstring("cut.txt.gz: cannot be unpacked"));
}

TEST_CASE("malformed lines of JSON are named, and tolerated up to the limit", "[text_files]") {
  const auto [line, why] = GENERATE(table<std::string, std::string>({
      {"{\"text\": 3}", "'text' is number, not a string"},
      {"{\"body\": \"x\"}", "no member 'text'"},
      {"[]", "array, not an object"},
      {"plain words", "not JSON"},
      {"{\"text\": \"\xe9\"}", "the line is not valid UTF-8"},
  }));
  const TemporaryFolder folder;
  folder.write("a.txt", "a");
  const auto path = folder.write("b.jsonl", "{\"text\": \"one\"}\n" + line + "\n{\"text\": \"two\"}\n");
  TextDataConfig config;
  for (const auto& source : {path, folder.path()}) {
    config.malformed_limit = 0;
    const auto message = text_refusal(source, config);
    CHECK_THAT(message, ContainsSubstring(path.string() + ":2: " + why));
    config.malformed_limit = 0.5;
    CHECK_THAT(read_text_files(source, config).text, ContainsSubstring("one\ntwo"));
    CHECK(read_text_files(source, config).description.at("malformed") == 1);
  }
}

TEST_CASE("a held-out file is the validation split, whole", "[text_files]") {
  const TemporaryFolder folder;
  TextDataConfig config;
  config.path = folder.write("train.txt", "abc abc abc").string();
  config.validation_path = folder.write("held.jsonl", "{\"text\": \"xyz\"}\n{\"text\": \"abx\"}\n").string();
  const auto corpus = load_corpus(config, true);
  std::shared_ptr<const Tokenizer> tokenizer;
  const TextDataset dataset(corpus, config, 2, tokenizer);
  CHECK(tokenizer->decode(dataset.tokens(Split::train)) == "abc abc abc");
  CHECK(tokenizer->decode(dataset.tokens(Split::validation)) == "xyz\nabx");
  CHECK(corpus.description.at("validation").at("documents") == 2);
  CHECK(corpus.description.at("validation").at("path") == *config.validation_path);
  folder.write("held.jsonl", "{\"text\": \"xyz\"}\n{\"text\": \"aby\"}\n");
  CHECK(load_corpus(config, true).description != corpus.description);
  std::shared_ptr<const Tokenizer> words;
  config.tokenizer = WordTokenizerOptions{.min_count = 1, .whitespace = Whitespace::kept};
  const TextDataset by_words(corpus, config, 1, words);
  CHECK(words->to_json().dump().find("xyz") == std::string::npos);
}

TEST_CASE("keys that mean nothing for the files at hand are errors", "[text_files]") {
  const TemporaryFolder folder;
  const auto text = folder.write("a.txt", "plain").string(), lines = folder.write("b.jsonl", json_lines).string();
  const auto outcome = [&](const std::string& path, auto change) {
    TextDataConfig config;
    config.path = path;
    change(config);
    return failure([&] { load_corpus(config, true); });
  };
  const auto separate = [](TextDataConfig& config) { config.separate_documents = true; };
  const auto limit = [](TextDataConfig& config) { config.malformed_limit = 0.1; };
  const auto field = [](TextDataConfig& config) { config.text_field = "text2"; };
  CHECK_THAT(outcome(text, separate).second, ContainsSubstring("data.separate_documents: means nothing for " + text));
  CHECK_THAT(outcome(text, limit).second, ContainsSubstring("data.malformed_limit: means nothing"));
  CHECK_THAT(outcome(text, field).second, ContainsSubstring("data.text_field: means nothing"));
  CHECK(outcome(text, field).first == ExitCode::usage);
  CHECK(outcome(lines, separate).first == ExitCode::ok);
  CHECK(outcome(folder.path().string(), separate).first == ExitCode::ok);
  CHECK(outcome(lines, limit).first == ExitCode::ok);
}

}  // namespace metaformer
