// Runs as a user finds them again: runs/latest, sessions, and what a start or a stop says.

#include "cli/program.h"

namespace fs = std::filesystem;

namespace {

nlohmann::json read_json(const fs::path& file) { return nlohmann::json::parse(read_text(file)); }

}  // namespace

TEST_CASE("every new run becomes runs/latest, and who falls back to it says which run that is", "[runs]") {
  const Program program;
  const auto latest = program.folder() / "runs/latest";
  program.succeed({"train", "--config", "small.yaml"});
  const auto first = fs::canonical(latest);
  CHECK(fs::read_symlink(latest) == first.filename());

  program.succeed({"train", "--config", "small.yaml", "--out", "elsewhere/second"});
  CHECK(fs::canonical(latest) == fs::canonical(program.folder() / "elsewhere/second"));
  CHECK(fs::read_symlink(latest) == "../elsewhere/second");
  for (const Arguments& command : {Arguments{"evaluate"}, {"sample", "--tokens", "3"}}) {
    const auto result = program.run(command);
    CHECK(result.code == 0);
    CHECK_THAT(result.err, ContainsSubstring("runs/latest is elsewhere/second"));
  }
  CHECK_THAT(program.run({"evaluate", "--run", first.string()}).err, !ContainsSubstring("latest"));

  const TemporaryFolder other;
  program.succeed({"train", "--config", "small.yaml", "--out", (other / "third").string()});
  CHECK(fs::read_symlink(latest) == fs::canonical(other / "third"));
  CHECK_THAT(program.run({"evaluate"}).err,
             ContainsSubstring("runs/latest is " + fs::canonical(other / "third").string()));

  program.succeed({"train", "--config", "small.yaml", "--out", "runs/fourth"});
  CHECK(fs::read_symlink(latest) == "fourth");
}

TEST_CASE("a run in another folder called runs is also the latest there", "[runs]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "project/runs/one"});
  CHECK(fs::read_symlink(program.folder() / "project/runs/latest") == "one");
  CHECK(fs::canonical(program.folder() / "runs/latest") == fs::canonical(program.folder() / "project/runs/one"));
}

TEST_CASE("a runs/latest that cannot be set is a warning; one that leads nowhere is named", "[runs]") {
  const Program program;
  program.folder().write("runs", "a file");
  const auto trained = program.run({"train", "--config", "small.yaml", "--out", "run"});
  CHECK(trained.code == 0);
  CHECK_THAT(trained.err, ContainsSubstring("warning: runs/latest cannot point at this run"));
  fs::remove(program.folder() / "runs");
  fs::create_directory(program.folder() / "runs");
  fs::create_symlink("gone", program.folder() / "runs/latest");
  const auto lost = program.run({"evaluate"});
  CHECK(lost.code == 2);
  CHECK_THAT(lost.err, ContainsSubstring("--run runs/latest: the run that this link points at, gone, is gone"));
}

TEST_CASE("resuming with more steps says what the schedule does, and keeps every session", "[runs]") {
  const Program program;
  const auto resume = [&](const std::string& steps, const Arguments& more = {}) {
    Arguments arguments = {"train", "--config", "small.yaml", "--out",
                           "run",   "--resume", "--set",      "train.steps=" + steps};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = program.run(arguments);
    CHECK(result.code == 0);
    return result.err;
  };
  resume("4");
  const auto stretched = resume("8");
  CHECK_THAT(stretched,
             ContainsSubstring("warning: train.steps was 4 and is 8; the cosine schedule continues at step 4 "
                               "with learning rate 0.00055, where it was 0.0001 before, and ends at step 8"));
  CHECK_THAT(resume("10", {"--set", "train.eval_interval=2", "--quiet"}),
             ContainsSubstring("train.steps was 8 and is 10"));
  CHECK_THAT(resume("10"), !ContainsSubstring("schedule"));

  const auto environment = read_json(program.folder() / "run/environment.json");
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
  program.succeed({"train", "--config", "small.yaml", "--set", "task.sample_interval=2"});
  const auto lines = read_text(program.folder() / "runs/latest/samples.jsonl");
  const auto sample = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  CHECK(sample["step"] == 2);
  const auto repeated =
      nlohmann::json::parse(program.succeed({"sample", "--checkpoint", "step-2", "--tokens", "200", "--json", "--seed",
                                             std::to_string(sample["seed"].get<std::uint64_t>())}));
  CHECK(repeated["text"] == sample["text"]);
}

TEST_CASE("the first signal is answered at once, the second ends the program", "[runs]") {
  const Program program;
  const auto pid = program.start({"train", "--config", "small.yaml", "--out", "run", "--quiet", "--set",
                                  "train.steps=100000000", "--set", "train.eval_interval=50", "--set",
                                  "model={width: 64, layers: 8, context: 64}", "--set", "train.batch_size=4096"});
  const auto wait_for = [&](const fs::path& file, const std::string& text) {
    for (int i = 0; i < 600 && read_text(file).find(text) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return read_text(file).find(text) != std::string::npos;
  };
  REQUIRE(wait_for(program.folder() / "run/train.log", "device:"));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(pid, SIGTERM);
  CHECK(wait_for(program.folder() / "err", "stopping after this step; again to quit\n"));
  kill(pid, SIGTERM);
  CHECK(program.wait(pid).code == -SIGTERM);
}

TEST_CASE("standard streams that are closed take no file's place", "[runs]") {
  const Program program;
  program.folder().write("closed.sh", "exec \"$@\" <&- >&- 2>&-\n");
  const auto pid = fork();
  if (pid == 0) {
    if (chdir(program.folder().path().c_str()) == 0)
      execl("/bin/sh", "sh", "closed.sh", METAFORMER_PROGRAM, "train", "--config", "small.yaml", "--out", "run",
            static_cast<char*>(nullptr));
    _exit(126);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  for (const auto& entry : fs::recursive_directory_iterator(program.folder() / "run"))
    if (entry.is_regular_file() && entry.path().filename() != "train.log") {
      INFO(entry.path());
      CHECK(read_text(entry.path()).find("device: ") == std::string::npos);
    }
  CHECK_THAT(read_text(program.folder() / "run/train.log"), ContainsSubstring("device: "));
}

// The address sanitizer's own memory is many times that of a training, so its builds measure nothing here.
#ifdef __SANITIZE_ADDRESS__
constexpr bool measures_memory = false;
#else
constexpr bool measures_memory = true;
#endif

TEST_CASE("a text that is larger than the memory ends with one line", "[runs]") {
  if (!measures_memory) return skip("the address sanitizer takes memory of its own");
  const Program program;
  fs::resize_file(program.folder() / "text.txt", std::uintmax_t{6} << 30);  // a hole: it takes no room on the disk
  rlimit usual{}, small{};
  REQUIRE(getrlimit(RLIMIT_AS, &usual) == 0);
  small = {.rlim_cur = rlim_t{4} << 30, .rlim_max = usual.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &small) == 0);
  const auto result = program.run({"train", "--config", "small.yaml", "--out", "run", "--device", "cpu"});
  REQUIRE(setrlimit(RLIMIT_AS, &usual) == 0);
  CHECK(result.code == 5);
  CHECK_THAT(result.err, ContainsSubstring("error: out of memory"));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

TEST_CASE("out of memory ends evaluation and sampling with what was missing", "[runs]") {
  if (!measures_memory) return skip("the address sanitizer takes memory of its own");
  const Program program;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += small_text().substr(0, 200);
  program.folder().write("text.txt", text);
  program.succeed({"train", "--config", "small.yaml", "--out", "run", "--set", "model.positions=none", "--set",
                   "train.evaluation={kind: random, batches: 1, tokens: 1000}"});
  rlimit usual{}, small{};
  REQUIRE(getrlimit(RLIMIT_AS, &usual) == 0);
  small = {.rlim_cur = rlim_t{4} << 30, .rlim_max = usual.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &small) == 0);
  const auto evaluated =
      program.run({"evaluate", "--run", "run", "--context", "60000", "--set", "model.mixer.backend=reference"});
  const auto sampled =
      program.run({"sample", "--run", "run", "--context", "1000000", "--num-samples", "65536", "--tokens", "3"});
  REQUIRE(setrlimit(RLIMIT_AS, &usual) == 0);
  for (const auto& result : {evaluated, sampled}) {
    CHECK(result.code == 5);
    CHECK_THAT(result.err, ContainsSubstring("error: out of memory: ") && !ContainsSubstring("enforce fail"));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  CHECK_THAT(evaluated.err, ContainsSubstring("GiB more cannot be had"));
}

TEST_CASE("a training that clearly cannot fit into the memory is refused unless forced", "[runs]") {
  if (!measures_memory) return skip("the address sanitizer takes memory of its own");
  const Program program;
  Arguments arguments = {
      "train", "--config",       "small.yaml", "--out", "run", "--device", "cpu", "--set", "train.batch_size=524288",
      "--set", "model.layers=64"};
  rlimit usual{}, small{};
  REQUIRE(getrlimit(RLIMIT_AS, &usual) == 0);
  small = {.rlim_cur = rlim_t{4} << 30, .rlim_max = usual.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &small) == 0);
  const auto refused = program.run(arguments);
  const bool made = fs::exists(program.folder() / "run");
  arguments.push_back("--force");
  const auto forced = program.run(arguments);
  REQUIRE(setrlimit(RLIMIT_AS, &usual) == 0);
  CHECK(refused.code == 5);
  CHECK_THAT(refused.err, ContainsSubstring("training takes about ") &&
                              ContainsSubstring("and 4.0 GiB are available") && ContainsSubstring("--force"));
  CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
  CHECK_FALSE(made);
  CHECK(forced.code == 5);  // where memory runs out in fact
  CHECK_THAT(forced.err,
             ContainsSubstring("warning: training takes about ") && ContainsSubstring("step 1: out of memory"));
}

TEST_CASE("the memory that a config check names is about what a training takes", "[runs]") {
  if (!measures_memory) return skip("the address sanitizer takes memory of its own");
  const auto change = GENERATE(as<std::string>(), "train.batch_size=128",
                               "data.tokenizer={kind: word, whitespace: kept, vocabulary: 6000}",
                               "train.precision=bf16", "model={kind: lstm, width: 256, dropout: 0.1}",
                               "model={kind: gru, width: 256}", "model={kind: feed_forward, window: 16, hidden: 1024}",
                               // Of few different words, whose number the tokenizer's options say nothing of.
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
  const Arguments more = {"--config", "wide.yaml", "--set", change, "--json"};
  const auto with = [&](Arguments command) {
    command.insert(command.end(), more.begin(), more.end());
    return nlohmann::json::parse(program.succeed(command));
  };
  const auto expected = with({"config", "check"}).at("memory_bytes").get<double>();
  const auto taken = with({"train", "--device", "cpu"}).at("peak_memory_bytes").get<double>();
  CHECK(expected > 0.8 * taken);
  CHECK(expected < 1.5 * taken);
}

TEST_CASE("a run without a checkpoint is not the latest", "[runs]") {
  const Program program;
  const auto diverge = [&](const std::string& out) {
    const auto result = program.run({"train", "--config", "small.yaml", "--out", out, "--set",
                                     "train.learning_rate=1e30", "--set", "train.clip=0"});
    CHECK(result.code != 0);
    CHECK_FALSE(fs::exists(program.folder() / out / "checkpoints/last"));
  };
  diverge("runs/first");
  CHECK_FALSE(fs::exists(fs::symlink_status(program.folder() / "runs/latest")));
  for (const Arguments& command : {Arguments{"evaluate"}, {"sample"}, {"export", "--out", "x"}}) {
    const auto none = program.run(command);
    CHECK(none.code == 2);
    CHECK_THAT(none.err, ContainsSubstring("no run of this folder has a checkpoint; the newest, runs/first, has none"));
  }
  program.succeed({"train", "--config", "small.yaml", "--out", "runs/good"});
  diverge("runs/later");
  CHECK(fs::read_symlink(program.folder() / "runs/latest") == "good");
  const auto result = program.run({"evaluate"});
  CHECK(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("runs/latest is runs/good; runs/later is newer and has no checkpoint"));

  program.succeed({"train", "--config", "small.yaml", "--out", "runs/newest"});
  fs::remove_all(program.folder() / "runs/newest");
  const auto left = program.run({"evaluate"});
  CHECK(left.code == 0);
  CHECK_THAT(left.err, ContainsSubstring("runs/latest is runs/good"));
}

TEST_CASE("nothing of a run is written through a link", "[runs]") {
  const Program program;
  const auto victim = program.folder().write("victim", "untouched\n");
  const auto name = GENERATE(as<std::string>(), "lock", "train.log");
  program.succeed({"train", "--config", "small.yaml", "--out", "run", "--set", "train.steps=2"});
  fs::remove(program.folder() / "run" / name);
  fs::create_symlink(victim, program.folder() / "run" / name);
  const auto refused = program.run({"train", "--config", "small.yaml", "--out", "run", "--resume"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("run/" + name + ": it is a link"));
  CHECK(read_text(victim) == "untouched\n");
  fs::remove(program.folder() / "run" / name);
  fs::create_symlink(program.folder() / "created", program.folder() / "run" / name);
  CHECK(program.run({"train", "--config", "small.yaml", "--out", "run", "--resume"}).code == 2);
  CHECK_FALSE(fs::exists(program.folder() / "created"));
  fs::remove(program.folder() / "run" / name);
  for (const auto* other : {"metrics.jsonl", "summary.json", "environment.json", "samples.jsonl", "profile.json"}) {
    fs::remove(program.folder() / "run" / other);
    fs::create_symlink(victim, program.folder() / "run" / other);
  }
  program.succeed({"train", "--config", "small.yaml", "--out", "run", "--resume", "--profile"});
  CHECK(read_text(victim) == "untouched\n");
}

TEST_CASE("line breaks and control characters of names are escaped in all messages", "[runs]") {
  const Program program;
  const auto text = small_text();
  program.folder().write("odd\nname\x1b[31m/a.txt", text);
  program.folder().write("odd\nname\x1b[31m/b.pdf", text);
  const auto result = program.run(
      {"train", "--config", "small.yaml", "--out", "run\nwith a break", "--set", "data.path=\"odd\\nname\\e[31m\""});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("odd\\nname\\x1b[31m") && ContainsSubstring("run\\nwith a break"));
  CHECK_THAT(result.err, !ContainsSubstring("odd\nname") && !ContainsSubstring("run\nwith"));
  CHECK_THAT(read_text(program.folder() / "run\nwith a break/train.log"), !ContainsSubstring("odd\nname"));
}

TEST_CASE("a missing TMPDIR is named", "[runs]") {
  const Program program;
  setenv("TMPDIR", "/no/such folder", 1);
  const auto result = program.run({"train", "--config", "small.yaml", "--out", "run", "--processes", "2"});
  unsetenv("TMPDIR");
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("error: TMPDIR=/no/such folder: ") &&
                             ContainsSubstring("No such file or directory; set TMPDIR to a folder"));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

TEST_CASE("a folder of a run that may not be read is named with the reason", "[runs]") {
  const Program program;
  program.succeed({"train", "--config", "small.yaml", "--out", "run"});
  // Without the right of root to read everything.
  const auto run = [&](const std::string& arguments) {
    program.folder().write("run.sh", "exec setpriv --bounding-set -dac_override,-dac_read_search " +
                                         std::string(METAFORMER_PROGRAM) + " " + arguments + " > out 2> err\n");
    const auto pid = fork();
    if (pid == 0) {
      if (chdir(program.folder().path().c_str()) == 0) execl("/bin/sh", "sh", "run.sh", static_cast<char*>(nullptr));
      _exit(126);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return Result{WEXITSTATUS(status), "", read_text(program.folder() / "err")};
  };
  if (run("--version").code != 0) return skip("setpriv cannot drop capabilities here");
  const auto unreadable = GENERATE(as<std::string>(), "run/checkpoints", "run/checkpoints/step-4", "run",
                                   "run/checkpoints/step-4/meta.json", "run/config.yaml");
  fs::permissions(program.folder() / unreadable, fs::perms::none);
  const auto result = run("evaluate --run run");
  const auto resumed = run("train --config small.yaml --out run --resume --set train.steps=5");
  fs::permissions(program.folder() / unreadable, fs::perms::owner_all);
  INFO(unreadable << ": " << result.err << resumed.err);
  CHECK(result.code != 0);
  CHECK_THAT(result.err, ContainsSubstring("cannot be read: Permission denied"));
  CHECK_THAT(result.err, !ContainsSubstring("no such") && !ContainsSubstring("it has none"));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK_THAT(resumed.err, ContainsSubstring("Permission denied"));
}
