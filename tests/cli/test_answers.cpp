// Answers of checkpoints: sample and predict, and evaluations of ensembles.

#include "cli/program.h"

namespace {

void train_classifier(const Program& program, const Arguments& changes = {}, const std::string& run = "run") {
  program.folder().write("table.csv", labelled_table(300));
  const Arguments usual =
      "data.path=table.csv data.validation_fraction=0.4 train.steps=60 train.learning_rate=0.01 train.eval_interval=60";
  program.succeed({"train", "--config", "text_classifier.yaml", "--out", run}, set(joined(usual, changes)));
}

// The first column, each followed by a space.
std::string labels_of(const std::string& out) {
  std::string labels;
  for (const auto& line : lines_of(out)) labels += line.substr(0, line.find('\t')) + " ";
  return labels;
}

std::string without_speed(const std::string& messages) {
  std::string kept;
  for (const auto& line : lines_of(messages))
    if (!line.ends_with("/s")) kept += line + "\n";
  return kept;
}

}  // namespace

TEST_CASE("sample takes prompts from a file or a conversation, and writes several texts", "[cli]") {
  const Program program;
  program.train("run");
  const Arguments sample = "sample --run run --tokens 12 --seed 3";
  program.folder().write("prompt.txt", "to be, or\nnot");
  const auto from_file = program.succeed(sample, {"--prompt-file", "prompt.txt"});
  CHECK(from_file.starts_with("to be, or\nnot"));
  CHECK(from_file == program.succeed(sample, {"--prompt", "to be, or\nnot"}));
  CHECK(program.run(sample, {"--prompt", "a", "--prompt-file", "prompt.txt"}).code == 2);
  CHECK(program.run(sample, {"--prompt-file", "missing.txt"}).code == 2);

  const auto several = program.json(sample, {"--prompt", "to", "--samples", "3"});
  CHECK(several.at("samples").size() == 3);
  CHECK(several.at("tokens") == 36);
  CHECK(several.at("tokens_per_second") > 0);
  CHECK(several["samples"][0]["text"] != several["samples"][1]["text"]);
  const auto single = program.json(sample, {"--prompt", "to"});
  CHECK(single.at("text") == several["samples"][0]["text"]);
  CHECK(single.at("text").get<std::string>().size() == 12);

  const auto conversation = program.run_with_input(joined(sample, {"--interactive"}), "to be\n~\nnot\n");
  CHECK(conversation.code == 0);
  CHECK_THAT(conversation.err, ContainsSubstring("line 2: prompt '~'"));
  CHECK(conversation.out ==
        program.succeed(sample, {"--prompt", "to be"}) + program.succeed(sample, {"--prompt", "not"}));
}

TEST_CASE("sample with a sorter sorts lists", "[cli]") {
  const Program program;
  program.succeed("train --config sorter_scaled_dot_product.yaml --out run",
                  set({"train.steps=400", "train.eval_interval=400"}));
  const Arguments sample = "sample --run run";
  CHECK(program.succeed(sample, {"--prompt", "2 0 1 1 0 2"}) == "0 0 1 1 2 2\n");
  CHECK(program.succeed(sample, {"--prompt", "0,0,2,0,0,1", "--seed", "9"}) == "0 0 0 0 1 2\n");
  CHECK(program.run_with_input(joined(sample, {"--interactive"}), "1 1 1 1 1 0\n1 2\n2 2 2 1 1 1\n").out ==
        "0 1 1 1 1 1\n1 1 1 2 2 2\n");
  for (const auto& [prompt, wrong] : {std::pair("2 0 1", "3 numbers"), {"2 0 1 1 0 7", "'7'"}, {"2 0 x 1 0 2", "'x'"}})
    program.refuse(joined(sample, {"--prompt", prompt}), 2, {wrong});
  CHECK(program.json("evaluate --run run --split test").at("exact_match") > 0.9);
}

TEST_CASE("sample generates with weights in bfloat16 on the CPU if the model has a decoder", "[cli]") {
  const Program program;
  program.train("run");
  const Arguments sample = "sample --run run --device cpu --prompt 'to be' --tokens 40 --temperature 0";
  CHECK(program.succeed(sample, "--precision fp32") == program.succeed(sample));
  const auto narrow = program.succeed(sample, "--precision bf16");
  CHECK(narrow.size() == 5 + 40 + 1);
  CHECK(program.succeed(sample, "--precision bf16 --window slide").size() == narrow.size());
  // A prompt of a conversation is answered as if it were alone.
  const auto conversation = "sample --run run --device cpu --tokens 40 --temperature 0 --precision bf16 --interactive";
  CHECK(program.run_with_input(conversation, "or not\nto be\n").out.ends_with(narrow));
  CHECK(program.json(sample, "--precision bf16 --num-samples 3").at("samples").size() == 3);

  for (const auto& [words, text] : std::vector<std::pair<std::string, std::string>>{
           {"--precision fp8", "--precision fp8: expected fp32 or bf16"},
           {"--precision bf16 --no-cache", "--precision bf16: |--no-cache"}})
    program.refuse_in_one_line(joined(sample, words), 2, {text});
  program.train("lsh", {"model.mixer={kind: lsh, chunk: 4}"});
  program.train("window", {"model={kind: feed_forward, width: 8, window: 4}"});
  for (const std::string run : {"lsh", "window"})
    program.refuse_in_one_line("sample --device cpu --precision bf16 --run " + run, 2,
                               {"--precision bf16: |no decoder"});
}

TEST_CASE("predict labels every line in order and names malformed ones", "[cli]") {
  const Program program;
  train_classifier(program);
  std::string input, expected;
  for (int i = 1; i <= 500; ++i) {
    input += i == 17 ? "\xff\xfe\n" : i == 400 ? "  \n" : i % 3 == 0 ? "w1 marker\n" : "w2 other\r\n";
    expected += i == 17 || i == 400 ? " " : i % 3 == 0 ? "yes " : "no ";
  }
  const auto result = program.run_with_input("predict --run run", input);
  Program::check_refused(result, 3, {"standard input:17: ", "standard input:400: ", "2 of 500 lines"});
  CHECK(labels_of(result.out) == expected);

  program.folder().write("texts.txt", "w1 marker");
  const auto json = program.json("predict --run run texts.txt");
  CHECK(json.at("line") == 1);
  CHECK(json.at("label") == "yes");
  CHECK(json.at("probability") == json.at("probabilities").at("yes"));
  CHECK(program.run_with_input("predict --run run", "").code == 0);
  for (const Arguments& more : {Arguments{}, {"--random-batches", "3"}})
    program.refuse(joined("evaluate --run run --split test", more), 2, {"data.test_path"});
  CHECK(program.json("evaluate --run run --random-batches 3").at("texts") == 96);
}

TEST_CASE("a warning names a label of very few training texts, but not a rare class", "[cli]") {
  const Program program;
  const auto errors_with = [&](int texts, const std::string& label) {
    std::string table = "text,label\n";
    for (int i = 0; i < 120; ++i) table += "text number " + std::to_string(i) + (i % 2 == 0 ? ",0\n" : ",1\n");
    for (int i = 0; i < texts; ++i) table += "more " + std::to_string(i) + "," + label + "\n";
    program.folder().write("table.csv", table);
    program.folder().write("held_out.csv", "text,label\none,1\ntwo,0\n");
    program.succeed({"train", "--config", "text_classifier.yaml", "--out", "run" + std::to_string(texts)},
                    set({"data.path=table.csv", "data.validation_path=held_out.csv", "train.steps=1",
                         "train.schedule.warmup_steps=0", "task.baselines=false"}));
    return program.read("err");
  };
  CHECK_THAT(errors_with(1, "7"), Mentions("warning: 1|121|label '7'"));
  CHECK_THAT(errors_with(12, "2"), !ContainsSubstring("warning"));
}

TEST_CASE("an ensemble predicts the mean of its members' probabilities of each text", "[cli]") {
  const Program program;
  // The tokenizers differ, and with them the order of the texts by length.
  std::string tests = "text,label\n", lines;
  std::vector<std::string> labels;
  for (int i = 0; i < 20; ++i) {
    const bool marked = i * 7 % 5 < 2;
    labels.push_back(marked != (i % 6 == 0) ? "yes" : "no");
    lines += std::string(i % 4 == 0 ? "abcdefghij " : "a b ") + (marked ? "marker" : "other") +
             (i % 3 == 0 ? " x" : "") + "\n";
    tests += lines_of(lines).back() + "," + labels.back() + "\n";
  }
  program.folder().write("tests.csv", tests);
  const Arguments options = {"data.test_path=tests.csv", "train.steps=20", "train.precision=bf16"};
  train_classifier(program, options, "words");
  train_classifier(program, joined(options, {"data.tokenizer={kind: byte}"}), "bytes");
  const auto answers_of = [&](const std::string& run) {
    const auto answers =
        json_lines(program.run_with_input({"predict", "--run", run, "--json", "--uncalibrated"}, lines).out);
    REQUIRE(answers.size() == labels.size());
    return answers;
  };
  const auto by_words = answers_of("words"), by_bytes = answers_of("bytes");
  const auto count = static_cast<double>(labels.size());
  double loss = 0, accuracy = 0, loss_by_words = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto right = [&](const Json& answer) { return answer.at("probabilities").at(labels[i]).get<double>(); };
    const double together = (right(by_words[i]) + right(by_bytes[i])) / 2;
    loss_by_words -= std::log(right(by_words[i])) / count;
    loss -= std::log(together) / count;
    accuracy += (together > 0.5) / count;
  }
  const Arguments evaluate = "evaluate --run words --split test";
  const auto together = program.json(evaluate, {"--with", "bytes"});
  std::int64_t texts = 0;
  for (const auto& row : together["confusion"])
    for (const auto& counted : row) texts += counted.get<std::int64_t>();
  CHECK(texts == together["texts"]);
  CHECK(together.at("loss").get<double>() == Approx(loss).epsilon(1e-4));
  CHECK(together.at("accuracy").get<double>() == Approx(accuracy));
  CHECK(together.at("texts") == labels.size());
  CHECK(together.at("members").size() == 2);
  const auto single = program.json(evaluate);  // in the run's precision, as predict
  CHECK(single.at("loss").get<double>() == Approx(loss_by_words).epsilon(1e-6));
  CHECK((single["confusion"].size() == 2 && single["classes"].size() == 2));

  std::replace(tests.begin(), tests.end(), 'j', 'k');  // only texts change
  program.folder().write("renamed.csv", tests);
  train_classifier(program, {"data.test_path=renamed.csv", "train.steps=2"}, "renamed");
  train_classifier(program, {"data.validation_fraction=0.2", "train.steps=2"}, "split");
  program.refuse(joined(evaluate, {"--with", "renamed"}), 2, {"renamed: its test split"});
  program.refuse("evaluate --run words --with split", 2, {"split: its validation split"});
}

TEST_CASE("a run can train on labels of another run and be compared with it", "[cli]") {
  const Program program;
  train_classifier(program, {"train.steps=20"}, "teacher");
  const std::string texts = "w1 marker\nw2 other\nw3 marker\n";
  program.folder().write("texts.txt", texts);
  const auto answers = json_lines(program.succeed("predict --run teacher texts.txt --json"));
  REQUIRE(answers.size() == 3);
  std::string labelled;
  for (std::size_t i = 0; i < 3; ++i)
    labelled += Json{{"text", lines_of(texts)[i]}, {"label", answers[i].at("label")}}.dump() + "\n";
  program.folder().write("labels-1337.jsonl", labelled);
  train_classifier(program, {"train.steps=20", "data.extra_path=labels-{seed}.jsonl"}, "student");
  const auto compared = program.run("compare teacher student");
  CHECK(compared.code == 0);
  CHECK(compared.err.empty());
  CHECK_THAT(compared.out, ContainsSubstring("data.extra_path"));
  program.refuse(
      "train --config text_classifier.yaml --set data.path=table.csv data.extra_path=labels-{seed}.jsonl train.seed=2",
      3, {"labels-2.jsonl: "});
}

TEST_CASE("several processes predict the same as one, from one reader of the texts", "[cli][processes]") {
  const Program program;
  train_classifier(program);
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += i % 50 == 7 ? "\n" : "w" + std::to_string(i % 9) + (i % 3 ? " marker\n" : " w1\n");
  program.folder().write("texts.txt", lines);
  const Arguments predict = "predict --run run --json --batch-size 7";
  const auto alone = program.run(predict, {"texts.txt"});
  Program::check_refused(alone, 3, {"texts.txt: 294 texts, "});  // the other 6 are blank
  REQUIRE(lines_of(alone.out).size() == 300);
  const auto nothing = program.run_with_input("predict --run run", "");
  CHECK((nothing.code == 0 && nothing.out.empty()));
  CHECK_THAT(nothing.err, ContainsSubstring("warning: standard input: is empty"));
  Program::check_refused(program.run_with_input("predict --run run", std::string("a\0b\n", 4)), 3, {"has NUL bytes"});
  for (const std::string processes : {"2", "3"}) {
    const auto shared = program.run(predict, {"texts.txt", "--processes", processes});
    CHECK(shared.out == alone.out);
    CHECK(without_speed(shared.err) == without_speed(alone.err));
    CHECK(shared.code == 3);
    CHECK(program.run_with_input(joined(predict, {"--processes", processes}), lines).out == alone.out);
  }
  program.refuse("predict --run run absent.txt --processes 3", 3, {"error: 'absent.txt': "});
}

TEST_CASE("predict reads the formats of train, and names the format", "[cli]") {
  const Program program;
  train_classifier(program);
  const std::string jsonl = "{\"text\": \"w1 marker\"}\n";
  for (const auto& [file, content, options, code, labels, message] :
       std::vector<std::tuple<std::string, std::string, Arguments, int, std::string, std::string>>{
           {"new.csv", "id,text\n1,\"w1,\nmarker\"\n2,w2 other\n", {}, 0, "yes no ", "new.csv: csv with a header"},
           {"old.tsv", "label\ttext\nno\tw1 marker\n", {}, 0, "yes ", "old.tsv: tsv with a header"},
           {"bare.tsv", "w1 marker\nw2 other\n", "--header absent", 0, "yes no ", "bare.tsv:|without a header"},
           {"new.jsonl", jsonl, {}, 0, "yes ", "new.jsonl: JSON lines"},
           {"bad.jsonl", jsonl + "[]\n" + jsonl, {}, 3, "yes  yes ", "bad.jsonl:2: "},
           {"new.txt", "w2 other\nw1 marker\n", {}, 0, "no yes ", "new.txt: plain lines"},
           {"table.dat", "id,text\n1,w1 marker\n", "--format csv", 0, "yes ", "table.dat: csv"},
           {"wrong.csv", "id,body,label\n1,w1 marker,yes\n", {}, 3, "", "no column 'text'"},
           {"new.txt", "x\n", "--format xml", 2, "", "--format"}}) {
    program.folder().write(file, content);
    INFO(file);
    const auto result = program.refuse(joined({"predict", "--run", "run", file}, options), code, {message});
    CHECK(labels_of(result.out) == labels);
  }
}

TEST_CASE("predict labels only the column of the training, or a column that an option names", "[cli]") {
  const Program program;
  train_classifier(program);
  // The training table had no header. This run reads such tables, and still finds a column by its name.
  program.folder().write("bare_training.csv", labelled_table(300, ""));
  train_classifier(program, {"data.path=bare_training.csv"}, "headless");
  const std::vector<std::pair<std::string, std::string>> files = {
      {"other.csv", "id,review\n1,w1 marker\n2,w2 other\n"},
      {"other.tsv", "id\treview\n1\tw1 marker\n2\tw2 other\n"},
      {"bare.csv", "w1 marker,x\nw2 other,y\n"},
      {"second.csv", "1,w1 marker\n2,w2 other\n"},
      {"Text.csv", "Text\nw1\n"},
      {"named.csv", "id,text\n1,w1 marker\n"},
      {"other.jsonl", "{\"id\": 1, \"review\": \"w1 marker\"}\n"},
      {"empty.csv", ""},
      {"lines.txt", "w1\n"}};
  for (const auto& [file, content] : files) program.folder().write(file, content);
  for (const auto& [words, code, labels, parts] : std::vector<std::tuple<Arguments, int, std::string, Arguments>>{
           {"run other.csv", 3, "", {"other.csv:", "no column 'text'", "'id', 'review'", "--column"}},
           {"run other.tsv", 3, "", {"other.tsv:", "no column 'text'", "'id', 'review'"}},
           {"run bare.csv", 3, "", {"bare.csv:", "no column 'text'", "'w1 marker', 'x'"}},
           {"run Text.csv", 3, "", {"Text.csv:", "no column 'text'", "'Text'"}},
           {"run other.jsonl", 3, "", {"other.jsonl", "'text'", "line 1", "'id', 'review'"}},
           {"run other.csv --column review", 0, "yes no ", {}},
           {"run other.csv --column 2", 0, "yes no ", {}},  // with a header, as in training
           {"run other.jsonl --column review", 0, "yes ", {}},
           {"run bare.csv --header absent", 0, "yes no ", {}},
           {"run second.csv --header absent --column 2", 0, "yes no ", {}},
           {"run empty.csv", 3, "", {"empty.csv:", "'text'"}},
           {"run other.csv --column revew", 3, "", {"no column 'revew'", "did you mean 'review'?"}},
           {"run other.csv --column 9", 3, "", {"no column '9'", "'id', 'review'"}},
           {"run other.csv --column text --header absent", 2, "", {"--column 'text': "}},
           {"run other.csv --column 0", 2, "", {"--column"}},
           {"run other.csv --column ''", 2, "", {"--column: is empty"}},
           {"run other.csv --header maybe", 2, "", {"--header maybe: "}},
           {"run lines.txt --column text", 2, "", {"plain lines"}},
           {"run other.jsonl --header absent", 2, "", {"no header"}},
           {"headless bare.csv", 0, "yes no ", {"bare.csv:|without a header"}},
           {"headless named.csv", 0, "yes ", {}},
           {"headless other.csv --column text", 3, "", {}},
           {"headless other.csv --header present", 3, "", {}}}) {
    CAPTURE(words);
    const auto result = program.refuse(joined("predict --run", words), code, parts);
    CHECK(labels_of(result.out) == labels);
  }
}

TEST_CASE("a byte order mark at the start of a text or file is ignored", "[cli]") {
  const Program program;
  const std::string mark = "\xEF\xBB\xBF";
  program.train("run");
  program.folder().write("prompt.txt", mark + "to be");
  const Arguments sample = "sample --run run --tokens 5 --seed 3";
  const auto expected = program.succeed(sample, {"--prompt", "to be"});
  CHECK(program.succeed(sample, {"--prompt", mark + "to be"}) == expected);
  CHECK(program.succeed(sample, {"--prompt-file", "prompt.txt"}) == expected);
  CHECK(program.run_with_input(joined(sample, {"--interactive"}), mark + "to be\n").out == expected);
  const Arguments inspect = "inspect --run run --no-pictures --no-data";
  const auto inspected = program.json(inspect, {"--text", "to be"});
  CHECK(program.json(inspect, {"--text", mark + "to be"}) == inspected);
  CHECK(program.json(inspect, {"--file", "prompt.txt"}) == inspected);
  const Arguments encode = "data tokenizer --config small.yaml --encode";
  CHECK(program.json(encode, {mark + "to be"}).at("encoded") == program.json(encode, {"to be"}).at("encoded"));
  CHECK(program.succeed({"report", "run", "--prompt", mark + "to be", "--tokens", "5", "--json"}).find("cannot") ==
        std::string::npos);
  program.folder().write("marked.yaml", mark + program.read("small.yaml"));
  program.succeed("config check marked.yaml");
  train_classifier(program, {}, "classifier");
  program.folder().write("new.csv", mark + "text\nw1 marker\n");
  CHECK(program.succeed("predict --run classifier new.csv").starts_with("yes\t"));
}

TEST_CASE("sample reports how many tokens of a long prompt the model sees", "[cli]") {
  const Program program;
  program.train("run");
  program.train("gru", {"model={kind: gru, width: 8, context: 16}"});
  const std::string fits = "to be, or not to", longer = "a" + fits;  // 16 and 17 characters; the context is 16
  const Arguments sample = "sample --tokens 1 --seed 3 --run";
  for (const Arguments& more : {Arguments{}, {"--window", "slide"}, {"--no-cache"}}) {
    const auto whole = program.run(sample, joined({"run", "--prompt", fits}, more)),
               cut = program.run(sample, joined({"run", "--prompt", longer}, more));
    CHECK_THAT(whole.err, !ContainsSubstring("model.context"));
    CHECK_THAT(cut.err, Mentions("17 tokens") && Mentions("16") && Mentions("model.context"));
    CHECK(cut.out == "a" + whole.out);
  }
  CHECK(program.json(sample, {"run", "--prompt", longer}).at("cut") == true);
  CHECK(program.json(sample, {"run", "--prompt", fits}).at("cut") == false);
  CHECK_THAT(program.run(sample, {"gru", "--prompt", longer}).err, !ContainsSubstring("model.context"));
}

TEST_CASE("predict answers a slow writer line by line, and a signal ends it cleanly", "[cli]") {
  const Program program;
  train_classifier(program);
  REQUIRE(mkfifo(program.at("fifo").c_str(), 0600) == 0);
  const int writer = open(program.at("fifo").c_str(), O_RDWR);
  const auto pid = program.start("predict --run run", program.at("fifo"));
  for (const auto& [text, label] :
       {std::pair<std::string, std::string>("w1 marker\n", "yes\t"), {"w1 other\n", "no\t"}}) {
    REQUIRE(write(writer, text.data(), text.size()) == std::ssize(text));
    wait_until([&] { return program.read("out").find(label) != std::string::npos; });
  }
  kill(pid, SIGINT);
  CHECK(program.wait(pid).code == 130);
  close(writer);
}
