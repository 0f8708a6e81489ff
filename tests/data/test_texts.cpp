// Texts for language models: public corpora, files, folders; splits and windows.

#include <unistd.h>

#include <map>

#include "base/digest.h"
#include "base/download.h"
#include "data/corpus.h"
#include "data/data_support.h"
#include "data/text_dataset.h"
#include "support/silent_port.h"
#include "text/symbol_tokenizers.h"

namespace metaformer::test_texts {

namespace {

const std::string json_lines =
    "{\"text\": \"Erster.\\n\"}\n\n{\"id\": 3, \"text\": \"Zweiter \\u00e4.\"}\r\n{\"text\": \"\"}\n";

std::string text_refusal(const std::filesystem::path& path, const TextDataConfig& config = {}) {
  const auto message = message_of(ExitCode::data, [&] { read_text_files(path, config); });
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

const std::string sample_text = "Überraschung: 自然 \U0001F600\nEnde";

TextDataset dataset_of(const std::string& text, std::int64_t context,
                       TokenizerOptions tokenizer = CharacterTokenizerOptions{}) {
  TextDataConfig config;
  config.tokenizer = tokenizer;
  std::shared_ptr<const Tokenizer> made;
  return TextDataset(Corpus{.path = "memory.txt", .text = text, .sha256 = {}}, config, context, made);
}

std::string digits(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>('0' + i * i % 7);
  return text;
}

}  // namespace

TEST_CASE("a plain text is read without changes, gzipped or not", "[text_files]") {
  const TemporaryFolder folder;
  const std::string text = "one\r\n\ntwo \t";
  for (const auto& path :
       {folder.write("a.txt", text), folder.write("a.txt.gz", gzip(text)), folder.write("corpus", gzip(text))}) {
    const auto files = read_text_files(path, {});
    CHECK(files.text == text);
    CHECK(files.is_one_text);
    CHECK_FALSE(files.has_json_lines);
    CHECK_FALSE(files.description.contains("documents"));
    CHECK(files.description.at("sha256") == sha256(::read_text(path)));
  }
}

TEST_CASE("a byte order mark at the start of a file is removed", "[text_files]") {
  const std::string mark = "\xEF\xBB\xBF";
  const TemporaryFolder folder;
  TextDataConfig config;
  if (GENERATE(false, true)) config.tokenizer = ByteTokenizerOptions{};
  CHECK(read_text_files(folder.write("a.txt", mark + "one " + mark + "two"), config).text == "one " + mark + "two");
  CHECK(read_text_files(folder.write("b.txt.gz", gzip(mark + "one")), config).text == "one");
  CHECK(read_text_files(folder.write("c.jsonl", mark + json_lines), config).text == "Erster.\n\nZweiter ä.");
  CHECK(read_text_files(folder.path(), config).text == "one " + mark + "two\none\nErster.\n\nZweiter ä.");
  CHECK_THAT(text_refusal(folder.write("d.txt", mark), config), Mentions("d.txt:|empty"));
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
  CHECK_THAT(text_refusal(path, config), Mentions("object|'content'|1|'text'"));
  config.format = TableFormat::text;
  if (!name.ends_with("gz")) CHECK(read_text_files(path, config).text == json_lines);
}

TEST_CASE(
    "a folder's text is that of its files in the order of their paths, and its digest depends on contents and names",
    "[text_files]") {
  const TemporaryFolder folder;
  for (const auto& [name, content] : {std::pair<std::string, std::string>{"b.txt", "b"},
                                      {"a/z.txt", "az"},
                                      {"a.txt", "a"},
                                      {"c/deep/d.jsonl", "{\"text\": \"d1\"}\n{\"text\": \"d2\"}\n"},
                                      {"e.text.gz", gzip("e")},
                                      {".hidden.txt", "hidden"},
                                      {".git/f.txt", "hidden"},
                                      {"notes.pdf", "%PDF"}})
    folder.write(name, content);
  std::filesystem::create_directory_symlink(folder.path(), folder / "loop");
  const auto files = read_text_files(folder.path(), {});
  CHECK(files.text == "a\naz\nb\nd1\nd2\ne");
  CHECK(files.description.at("files") == 5);
  CHECK(files.description.at("documents") == 6);
  CHECK_FALSE(files.is_one_text);
  TextDataConfig all_text;
  all_text.format = TableFormat::text;
  CHECK_THAT(read_text_files(folder.path(), all_text).text, ContainsSubstring("%PDF"));
  const auto digest = [&] { return read_text_files(folder.path(), {}).description.at("sha256").get<std::string>(); };
  const auto first = digest();
  CHECK(digest() == first);
  folder.write("b.txt", "c");
  const auto changed = digest();
  CHECK(changed != first);
  std::filesystem::rename(folder / "b.txt", folder / "b2.txt");
  CHECK(digest() != changed);
}

TEST_CASE("the error for an unreadable text names file and line", "[text_files]") {
  const TemporaryFolder folder;
  CHECK_THAT(text_refusal(folder / "none.txt"), ContainsSubstring("none.txt: no such file"));
  CHECK_THAT(text_refusal(folder.path()), ContainsSubstring("holds no texts"));
  const auto latin = folder.write("latin.txt", "a\nb\ncaf\xe9");
  folder.write("a.txt", "fine");
  for (const auto& path : {latin, folder.path()})
    CHECK_THAT(text_refusal(path), Mentions("latin.txt:|UTF-8:|0xe9|offset 7|3)"));
  CHECK_THAT(text_refusal(folder.write("empty.txt", "")), Mentions("empty.txt:|empty"));
  const auto gzipped = gzip(std::string(1000, 'x'));
  CHECK_THAT(text_refusal(folder.write("cut.txt.gz", gzipped.substr(0, gzipped.size() - 3))),
             ContainsSubstring("cut.txt.gz: cannot be unpacked"));
}

TEST_CASE("malformed JSON lines are named in an error, and tolerated up to the limit", "[text_files]") {
  const TemporaryFolder folder;
  folder.write("a.txt", "a");
  TextDataConfig strict, tolerant;
  tolerant.malformed_limit = 0.5;
  for (const auto& [line, why] : {std::pair{"{\"text\": 3}", "'text'|number"}, {"plain words", "not JSON"}}) {
    const auto path = folder.write("b.jsonl", fmt::format("{{\"text\": \"one\"}}\n{}\n{{\"text\": \"two\"}}\n", line));
    for (const auto& source : {path, folder.path()}) {
      CHECK_THAT(text_refusal(source, strict), Mentions(path.string() + ":2: |" + why));
      CHECK_THAT(read_text_files(source, tolerant).text, ContainsSubstring("one\ntwo"));
      CHECK(read_text_files(source, tolerant).description.at("malformed") == 1);
    }
  }
}

TEST_CASE("the whole validation file is the validation split", "[text_files]") {
  const TemporaryFolder folder;
  TextDataConfig config;
  config.path = folder.write("train.txt", "abc abc abc").string();
  config.validation_path = folder.write("held.jsonl", "{\"text\": \"xyz\"}\n{\"text\": \"abx\"}\n").string();
  const auto corpus = load_corpus(config, true);
  std::shared_ptr<const Tokenizer> tokenizer;
  const TextDataset dataset(corpus, config, 2, tokenizer);
  CHECK(tokenizer->decode(dataset.tokens(Split::train).all()) == "abc abc abc");
  CHECK(tokenizer->decode(dataset.tokens(Split::validation).all()) == "xyz\nabx");
  CHECK(corpus.description.at("validation").at("documents") == 2);
  CHECK(corpus.description.at("validation").at("path") == *config.validation_path);
  folder.write("held.jsonl", "{\"text\": \"xyz\"}\n{\"text\": \"aby\"}\n");
  CHECK(load_corpus(config, true).description != corpus.description);
  std::shared_ptr<const Tokenizer> words;
  config.tokenizer = WordTokenizerOptions{.min_count = 1, .whitespace = Whitespace::kept};
  const TextDataset by_words(corpus, config, 1, words);
  CHECK(words->to_json().dump().find("xyz") == std::string::npos);
}

TEST_CASE("keys that mean nothing for the files are errors", "[text_files]") {
  const TemporaryFolder folder;
  const auto text = folder.write("a.txt", "plain").string(), lines = folder.write("b.jsonl", json_lines).string();
  using Change = void (*)(TextDataConfig&);
  const Change separate = [](TextDataConfig&config) { config.separate_documents = true; },
               limit = [](TextDataConfig&config) { config.malformed_limit = 0.1; },
               field = [](TextDataConfig&config) { config.text_field = "text2"; };
  const auto outcome = [&](const std::string& path, Change change) {
    TextDataConfig config;
    config.path = path;
    change(config);
    return failure([&] { load_corpus(config, true); });
  };
  for (const auto& [change, key] :
       {std::pair{separate, "data.separate_documents"}, {limit, "data.malformed_limit"}, {field, "data.text_field"}}) {
    const auto [code, message] = outcome(text, change);
    CHECK(code == ExitCode::usage);
    CHECK_THAT(message, ContainsSubstring(key + std::string(": means nothing for " + text)));
  }
  for (const auto& path : {lines, folder.path().string()}) CHECK(outcome(path, separate).first == ExitCode::ok);
  CHECK(outcome(lines, limit).first == ExitCode::ok);
}

TEST_CASE("the split is the same for every tokenizer, lies between characters, and needs a whole context of validation",
          "[dataset]") {
  const auto characters = dataset_of(sample_text, 1), bytes = dataset_of(sample_text, 1, ByteTokenizerOptions{});
  const auto train = CharacterTokenizer::from_text(sample_text).decode(characters.tokens(Split::train).all());
  CHECK(train == ByteTokenizer().decode(bytes.tokens(Split::train).all()));
  CHECK(characters.tokens(Split::train).size() == 20);  // int(23 * 0.9)
  CHECK(characters.statistics(Split::validation)->characters() == 3);
  CHECK_THAT(message_of(ExitCode::data, [] { dataset_of(digits(100), 10); }), Mentions("memory.txt:|validation|10|11"));
  CHECK_NOTHROW(dataset_of(digits(110), 10));
}

TEST_CASE("every token except the first is an evaluation target exactly once, in order", "[dataset]") {
  const auto count = GENERATE(50, 51, 57, 58, 64);
  const auto dataset = dataset_of(digits(count * 10), 7);
  const auto tokens = dataset.tokens(Split::validation).all();
  std::vector<std::int64_t> targets;
  std::int64_t counted = 0;
  for (std::int64_t first = 0; first < dataset.consecutive_window_count(Split::validation); first += 3) {
    const auto rows = dataset.consecutive_windows(Split::validation, first, 3);
    CHECK(rows.ids.size() == static_cast<std::size_t>(rows.rows * rows.length));
    counted += rows.target_count;
    std::copy_if(rows.targets.begin(), rows.targets.end(), std::back_inserter(targets), [](auto t) { return t >= 0; });
  }
  CHECK(counted == std::ssize(tokens) - 1);
  CHECK(targets == std::vector<std::int64_t>(tokens.begin() + 1, tokens.end()));
}

TEST_CASE("random windows are parts of the text, repeatable, and do not depend on the division of a step",
          "[dataset]") {
  const auto dataset = dataset_of(digits(500), 8);
  const auto rows_of = [&](std::uint64_t seed, std::int64_t step, std::int64_t first, std::int64_t rows) {
    return dataset.random_windows(Split::train, seed, RandomPurpose::batches, step, first, rows);
  };
  const auto whole = rows_of(1, 4, 0, 6);
  auto ids = rows_of(1, 4, 0, 2).ids;
  const auto rest = rows_of(1, 4, 2, 4).ids;
  ids.insert(ids.end(), rest.begin(), rest.end());
  CHECK(ids == whole.ids);
  CHECK(rows_of(2, 4, 0, 6).ids != whole.ids);
  CHECK(rows_of(1, 5, 0, 6).ids != whole.ids);
  for (std::size_t i = 0; i < whole.ids.size(); ++i)
    if ((i + 1) % 8 != 0) CHECK(whole.targets[i] == whole.ids[i + 1]);
  CHECK(whole.target_count == 48);
}

TEST_CASE("random windows reach every place, including the last one", "[dataset]") {
  const auto dataset = dataset_of(digits(30), 2);  // 27 training tokens give 25 places
  const auto rows = dataset.random_windows(Split::train, 9, RandomPurpose::batches, 0, 0, 2000);
  const auto tokens = dataset.tokens(Split::train).all();
  bool last_target_seen = false;
  std::map<std::int64_t, int> expected, actual;
  for (std::size_t place = 0; place < 25; ++place) ++expected[tokens[place]];
  for (std::size_t at = 0; at < 4000; at += 2) {
    ++actual[rows.ids[at]];
    last_target_seen |=
        rows.ids[at] == tokens[24] && rows.ids[at + 1] == tokens[25] && rows.targets[at + 1] == tokens[26];
  }
  for (const auto& [token, count] : expected) CHECK(actual[token] == Approx(80 * count).epsilon(0.35));
  CHECK(last_target_seen);
}

TEST_CASE("a public corpus is found by its names, checked by its digest, and never fetched with --offline",
          "[corpus]") {
  const TemporaryFolder folder;
  const Variable data("METAFORMER_DATA", folder.path().c_str());
  const OwnCache no_cache;
  const auto message = [](const std::string& corpus, ExitCode code = ExitCode::data) {
    TextDataConfig config;
    config.corpus = corpus;
    return message_of(code, [&] { load_corpus(config, true); });
  };
  CHECK_THAT(message("tinyshakespeare"), ContainsSubstring("--offline forbids"));
  folder.write("tinyshakespeare.txt", "not Shakespeare");
  CHECK_THAT(message("tinyshakespeare"), ContainsSubstring("should be 86c4e6aa"));
  CHECK_THAT(message("tinyshakespear", ExitCode::usage), ContainsSubstring("did you mean 'tinyshakespeare'?"));
  const auto& imdb = find_public_corpus("imdb");
  CHECK_FALSE(locate_corpus(imdb));
  folder.write("aclImdb_v1.txt", "");
  CHECK_FALSE(locate_corpus(imdb));
  folder.write("aclImdb_v1.labeled.tar.gz", "");  // another name
  CHECK(locate_corpus(imdb) == folder / "aclImdb_v1.labeled.tar.gz");
  folder.write("aclImdb_v1.tar.gz", "");  // the official one comes first
  CHECK(locate_corpus(imdb) == folder / "aclImdb_v1.tar.gz");
  CHECK_THAT(message("imdb", ExitCode::usage), ContainsSubstring("for task classification"));
  const Variable nowhere("METAFORMER_DATA", (folder / "nowhere").c_str());
  CHECK_THAT(message("tinyshakespeare"), ContainsSubstring("no such folder"));
}

TEST_CASE("there is no cache without a home folder, or if other users can write to it", "[corpus]") {
  const TemporaryFolder home;
  const Variable no_data("METAFORMER_DATA", nullptr), no_xdg("XDG_CACHE_HOME", nullptr);
  {
    const Variable path("HOME", home.path().c_str());
    CHECK(cache_folder() == home / ".cache" / "metaformer");
    const auto cache = home.write(".cache/metaformer/tinyshakespeare.txt", "planted").parent_path();
    CHECK(cache_folder() == cache);
    std::filesystem::permissions(cache, std::filesystem::perms::all);
    CHECK_FALSE(cache_folder());
    CHECK_FALSE(locate_corpus(find_public_corpus("tinyshakespeare")));
    std::filesystem::permissions(cache, std::filesystem::perms::owner_all);
    CHECK(cache_folder() == cache);
    if (::geteuid() == 0) {
      REQUIRE(::chown(cache.c_str(), 65534, 65534) == 0);
      CHECK_FALSE(cache_folder());
    }
  }
  for (const auto* value : {static_cast<const char*>(nullptr), "", "relative"}) {
    const Variable none("HOME", value);
    CHECK_FALSE(cache_folder());
    CHECK_THAT(message_of(ExitCode::data, [] { load_corpus(TextDataConfig{}, false); }), ContainsSubstring("no cache"));
  }
}

TEST_CASE("downloads need https, and digests have the values of RFC 1321 and FIPS 180-4", "[corpus]") {
  for (const std::string url : {"file:///etc/hostname", "http://127.0.0.1:9/a", "ftp://127.0.0.1:9/a"})
    CHECK_THAT(message_of(ExitCode::data, [&] { download(url, 100); }), ContainsSubstring("not supported"));
  CHECK(md5("") == "d41d8cd98f00b204e9800998ecf8427e");
  CHECK(md5("message digest") == "f96b697d7cb7938d525a2f31aaf161d0");
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("a download trusts the certificates in SSL_CERT_FILE", "[corpus]") {
  const SilentPort server;
  const Variable direct("no_proxy", "127.0.0.1");
  const Variable certificates("SSL_CERT_FILE", "/no/such/certificates.pem");
  const auto url = fmt::format("https://127.0.0.1:{}/a", server.number());
  CHECK_THAT(message_of(ExitCode::data, [&] { download(url, 100); }), ContainsSubstring("/no/such/certificates.pem"));
}

TEST_CASE("the characters of unknown words are counted", "[dataset]") {
  TextDataConfig config;
  config.tokenizer = WordTokenizerOptions{.min_count = 2, .whitespace = Whitespace::kept};
  Corpus corpus{.path = "memory.txt", .text = "aa bb aa bb aa bb .", .sha256 = {}};
  corpus.held_out = "aa strange bb, odd";
  std::shared_ptr<const Tokenizer> tokenizer;
  const TextDataset dataset(corpus, config, 1, tokenizer);
  CHECK(dataset.unknown_characters(Split::validation) == 2 + 7 + 1 + 3);  // aa without a space, strange , odd
  CHECK(dataset.unknown_characters(Split::train) == 2 + 1);
  CHECK(dataset_of(sample_text, 1).unknown_characters(Split::validation) == 0);
}

}  // namespace metaformer::test_texts
