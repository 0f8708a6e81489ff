// How a user finds runs again: runs/latest and sessions; messages at the start; folders, links and memory.

#include "cli/program.h"

namespace {

constexpr rlim_t four_gib = rlim_t{4} << 30;

// The address sanitizer takes many times the memory of a training, so its builds measure no memory.
#ifdef __SANITIZE_ADDRESS__
constexpr bool measures_memory = false;
#else
constexpr bool measures_memory = true;
#endif

}  // namespace

TEST_CASE("every new run becomes runs/latest, and commands without --run name the run that they use", "[runs]") {
  const Program program;
  const auto latest = program.folder() / "runs/latest";
  program.succeed("train --config small.yaml");
  const auto first = fs::canonical(latest);
  CHECK(fs::read_symlink(latest) == first.filename());

  const auto says = [&](const Arguments& command, const std::string& what) {
    program.succeed(command);
    CHECK_THAT(program.read("err"), ContainsSubstring(what));
  };
  program.train("elsewhere/second");
  CHECK(fs::read_symlink(latest) == "../elsewhere/second");
  for (const auto* command : {"evaluate", "sample --tokens 3"}) says(command, "runs/latest is elsewhere/second");
  program.succeed({"evaluate", "--run", first.string()});
  CHECK_THAT(program.read("err"), !ContainsSubstring("latest"));

  const TemporaryFolder other;
  program.train((other / "third").string());
  CHECK(fs::read_symlink(latest) == fs::canonical(other / "third"));
  says("evaluate", "runs/latest is " + fs::canonical(other / "third").string());

  program.train("runs/fourth");
  CHECK(fs::read_symlink(latest) == "fourth");
  program.train("project/runs/one");  // also project/runs/latest
  CHECK(fs::read_symlink(program.at("project/runs/latest")) == "one");
  CHECK(fs::canonical(latest) == fs::canonical(program.at("project/runs/one")));
}

TEST_CASE("a runs/latest that cannot be set gives a warning, and a broken runs/latest is named in an error", "[runs]") {
  const Program program;
  program.folder().write("runs", "a file");
  CHECK_THAT(program.train("run"), ContainsSubstring("warning: runs/latest "));
  fs::remove(program.at("runs"));
  fs::create_directory(program.at("runs"));
  fs::create_symlink("gone", program.at("runs/latest"));
  program.refuse("evaluate", 2, {"--run runs/latest: ", ", gone, "});
}

TEST_CASE("a run without a checkpoint is not the latest", "[runs]") {
  const Program program;
  const auto diverge = [&](const std::string& out) {
    CHECK(program
              .run({"train", "--config", "small.yaml", "--out", out}, set({"train.learning_rate=1e30", "train.clip=0"}))
              .code != 0);
    CHECK_FALSE(program.has(out + "/checkpoints/last"));
  };
  const auto latest = program.folder() / "runs/latest";
  diverge("runs/first");
  CHECK_FALSE(fs::exists(fs::symlink_status(latest)));
  for (const auto* command : {"evaluate", "sample", "export --out x"})
    program.refuse(command, 2, {"no run|has a checkpoint", "runs/first"});
  program.train("runs/good");
  diverge("runs/later");
  CHECK(fs::read_symlink(latest) == "good");
  program.succeed("evaluate");
  CHECK_THAT(program.read("err"), ContainsSubstring("runs/latest is runs/good") && ContainsSubstring("runs/later"));

  program.train("runs/newest");
  fs::remove_all(program.at("runs/newest"));
  program.succeed("evaluate");
  CHECK_THAT(program.read("err"), ContainsSubstring("runs/latest is runs/good"));

  program.train("runs/sweep/a");
  program.train("runs/sweep/b");
  fs::remove_all(program.at("runs/sweep/b"));
  program.succeed("evaluate");
  CHECK_THAT(program.read("err"), ContainsSubstring("runs/latest is runs/sweep/a"));
}

TEST_CASE("a resume with more steps warns of the schedule, and environment.json keeps every session", "[runs]") {
  const Program program;
  const auto resume = [&](const std::string& steps, const Arguments& more = {}) {
    program.succeed({"train", "--config", "small.yaml", "--out", "run", "--resume", "--set", "train.steps=" + steps},
                    more);
    return program.read("err");
  };
  resume("4");
  CHECK_THAT(resume("8"), Mentions("warning: train.steps|4|8|continues|4|0.00055|0.0001|8"));
  CHECK_THAT(resume("10", "--set train.eval_interval=2 --quiet"), Mentions("train.steps|8|10"));
  CHECK_THAT(resume("10"), !ContainsSubstring("schedule"));

  const auto environment = program.read_json("run/environment.json");
  const auto& sessions = environment.at("sessions");
  REQUIRE(sessions.size() == 3);
  CHECK(sessions[0]["command"].back() == "train.steps=4");
  CHECK(sessions[1]["command"].back() == "train.steps=8");
  CHECK(environment["command"] == sessions[2]["command"]);
  CHECK(environment["command"].back() == "--quiet");
  CHECK(sessions[1]["first_step"] == 4);
  CHECK(sessions[2]["first_step"] == 8);
  for (const auto& session : sessions)
    for (const auto* key : {"started", "commit", "dirty", "device_name", "threads", "host"})
      CHECK(session.contains(key));
  CHECK(environment.at("data").contains("sha256"));
}

TEST_CASE("the sample command repeats a sample of training", "[runs]") {
  const Program program;
  program.succeed("train --config small.yaml --set task.sample_interval=2");
  const auto sample = json_lines(program.read("runs/latest/samples.jsonl")).front();
  CHECK(sample["step"] == 2);
  const auto seed = std::to_string(sample["seed"].get<std::uint64_t>());
  CHECK(program.json("sample --checkpoint step-2 --tokens 200 --seed " + seed)["text"] == sample["text"]);
}

TEST_CASE("with closed standard streams every file has only its own content", "[runs]") {
  const Program program;
  CHECK(program.shell("\"$PROGRAM\" train --config small.yaml --out run <&- >&- 2>&-") == 0);
  for (const auto& entry : fs::recursive_directory_iterator(program.folder() / "run")) {
    if (!entry.is_regular_file()) continue;
    INFO(entry.path());
    const bool is_log = entry.path().filename() == "train.log";
    CHECK((read_text(entry.path()).find("device: ") != std::string::npos) == is_log);
  }
}

TEST_CASE("a lack of memory ends a command with the missing size, and a training before it starts", "[runs]") {
  if (!measures_memory) return skip("the address sanitizer takes memory of its own");
  const Program program;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += small_text().substr(0, 200);
  program.folder().write("text.txt", text);
  program.train("run", {"model.positions=none", "train.evaluation={kind: random, batches: 1, tokens: 1000}"});
  const Limit memory(RLIMIT_AS, four_gib);
  const auto evaluated = program.run("evaluate --run run --context 60000 --set model.mixer.backend=reference"),
             sampled = program.run("sample --run run --context 1000000 --num-samples 65536 --tokens 3");
  for (const auto& result : {evaluated, sampled}) {
    Program::check_refused(result, 5, {"error: out of memory: "});
    CHECK_THAT(result.err, !ContainsSubstring("enforce fail"));
    CHECK(is_one_line(result.err));
  }
  CHECK_THAT(evaluated.err, ContainsSubstring("GiB more"));

  const Arguments train = "train --config small.yaml --out new --device cpu",
                  large = joined(train, "--set train.batch_size=524288 --set model.layers=64");
  program.refuse_in_one_line(large, 5, {"4.0 GiB are available", "--force"});
  CHECK_FALSE(program.has("new"));
  program.refuse(joined(large, {"--force"}), 5, {"warning: training takes about ", "step 1:|memory"});
  fs::resize_file(program.at("text.txt"), std::uintmax_t{6} << 30);  // a sparse file, which takes no space on the disk
  program.refuse_in_one_line("train --config small.yaml --out another --device cpu --set data.cache=false", 5,
                             {"error: out of memory"});
}

TEST_CASE("the memory that config check predicts is about that of the training", "[runs]") {
  if (!measures_memory) return skip("the address sanitizer takes memory of its own");
  const auto change = GENERATE(as<std::string>(), "train.batch_size=128",
                               "data.tokenizer={kind: word, whitespace: kept, vocabulary: 6000}",
                               "train.precision=bf16", "model={kind: lstm, width: 256, dropout: 0.1}",
                               "model={kind: gru, width: 256}", "model={kind: feed_forward, window: 16, hidden: 1024}",
                               // The options of the tokenizer do not contain the small number of different words.
                               "data={path: few.txt, tokenizer: {kind: word, whitespace: kept}}",
                               "data={path: few.txt, tokenizer: {kind: bpe, whitespace: kept}}",
                               "data={path: few.txt, tokenizer: {kind: unigram, whitespace: kept}}",
                               "model.mixer={kind: lsh, chunk: 16}", "model.mixer={kind: lsh, chunk: 20}");
  const Program program;
  std::string words, few;
  for (int i = 0; i < 90000; ++i) {
    const auto* end = i % 10 == 9 ? "\n" : " ";
    words += "word" + std::to_string(i % 9000) + end;
    few += "word" + std::to_string(i * 7 % 300) + end;
  }
  program.folder().write("few.txt", few);
  program.folder().write("text.txt", words);
  program.folder().write("wide.yaml",
                         "base: small.yaml\nmodel: {layers: 3, width: 128, context: 128}\n"
                         "train: {steps: 2, batch_size: 64, evaluation: {kind: random, batches: 1}}\n");
  const Arguments config = {"--config", "wide.yaml", "--set", change};
  const auto expected = program.json("config check", config).at("memory_bytes").get<double>();
  const auto taken = program.json("train --device cpu", config).at("peak_memory_bytes").get<double>();
  CHECK(expected > 0.8 * taken);
  CHECK(expected < 1.5 * taken);
}

TEST_CASE("no file of a run is written through a link", "[runs]") {
  const Program program;
  const auto victim = program.folder().write("victim", "untouched\n");
  const auto file = "run/" + GENERATE(as<std::string>(), "lock", "train.log");
  const auto replace_by_link = [&](const std::string& name, const fs::path& target) {
    fs::remove(program.at(name));
    fs::create_symlink(target, program.at(name));
  };
  program.train("run", {"train.steps=2"});
  const Arguments resume = "train --config small.yaml --out run --resume";
  replace_by_link(file, victim);
  program.refuse(resume, 2, {file + ": it is a link"});
  CHECK(read_text(victim) == "untouched\n");
  replace_by_link(file, program.folder() / "created");
  program.refuse(resume, 2);
  CHECK_FALSE(program.has("created"));
  fs::remove(program.at(file));
  for (const std::string other : {"metrics.jsonl", "summary.json", "environment.json", "samples.jsonl", "profile.json"})
    replace_by_link("run/" + other, victim);
  program.succeed(resume, {"--profile"});
  CHECK(read_text(victim) == "untouched\n");
}

TEST_CASE("the error for an unreadable file or folder of a run contains the reason", "[runs]") {
  const Program program;
  program.train("run");
  // Without root's right to read every file.
  const auto run = [&](const std::string& arguments) {
    const auto code =
        program.shell("setpriv --bounding-set -dac_override,-dac_read_search \"$PROGRAM\" " + arguments + " > out");
    return Result{code, "", program.read("err")};
  };
  if (run("--version").code != 0) return skip("setpriv cannot drop capabilities here");
  const auto unreadable = GENERATE(as<std::string>(), "run/checkpoints", "run/checkpoints/step-4", "run",
                                   "run/checkpoints/step-4/meta.json", "run/config.yaml");
  fs::permissions(program.at(unreadable), fs::perms::none);
  const auto result = run("evaluate --run run");
  const auto resumed = run("train --config small.yaml --out run --resume --set train.steps=5");
  fs::permissions(program.at(unreadable), fs::perms::owner_all);
  INFO(unreadable << ": " << result.err << resumed.err);
  CHECK(result.code != 0);
  CHECK_THAT(result.err, ContainsSubstring("Permission denied"));
  CHECK_THAT(result.err, !ContainsSubstring("no such") && !ContainsSubstring("it has none"));
  CHECK(is_one_line(result.err));
  CHECK_THAT(resumed.err, ContainsSubstring("Permission denied"));
}
