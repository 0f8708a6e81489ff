// Training with several processes that the program or a launcher starts.

#include <csignal>

#include "base/signals.h"
#include "cli/program.h"
#include "support/silent_port.h"

namespace {

using namespace std::chrono_literals;
using metaformer::caught_signals;

Arguments training(const std::string& out, const Arguments& more = {}) {
  return joined(
      {"train", "--config", "small.yaml", "--out", out, "--set", "train.accumulate=2", "--set", "model.dropout=0.1"},
      more);
}

// Long enough to be stopped or killed.
const Arguments endless = "--set train.steps=100000 --set train.eval_interval=1000 --set train.checkpoint_interval=20";

std::vector<pid_t> children_of(pid_t parent) {
  const auto number = std::to_string(parent);
  std::istringstream numbers(read_text("/proc/" + number + "/task/" + number + "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; numbers >> child;) children.push_back(child);
  return children;
}

void wait_for_checkpoint(const Program& program) {
  wait_until([&] { return program.has("run/checkpoints/last"); });
}

std::string free_port() {
  static int port = 23000 + static_cast<int>(getpid() % 5000);
  return std::to_string(++port);
}

}  // namespace

TEST_CASE("in commands that compute, waiting threads soon sleep, unless the user has set this", "[processes]") {
  const Program program;
  const auto spins_with = [&](Variables::Values values) {
    const Variables variables(values);
    const auto pid = program.start("bench step --config small.yaml --steps 1000000");
    wait_until([&] { return program.read("err").find("threads, fp32") != std::string::npos; });
    const auto environment = read_text("/proc/" + std::to_string(pid) + "/environ");
    kill(pid, SIGKILL);
    program.wait(pid);
    const auto place = environment.find("GOMP_SPINCOUNT=");
    return place == std::string::npos ? "" : environment.substr(place, environment.find('\0', place) - place);
  };
  CHECK(spins_with({{"OMP_NUM_THREADS", "2"}}) == "GOMP_SPINCOUNT=5000");
  CHECK(spins_with({{"OMP_NUM_THREADS", "2"}, {"GOMP_SPINCOUNT", "7"}}) == "GOMP_SPINCOUNT=7");
  CHECK(spins_with({{"OMP_NUM_THREADS", "2"}, {"OMP_WAIT_POLICY", "active"}}).empty());
}

TEST_CASE("train --processes 2 trains the same bytes as one process, and prints each line once", "[cli][processes]") {
  const Program program;
  const Variables one_thread{{"OMP_NUM_THREADS", "1"}};  // the rounding of norms depends on the number of threads
  program.succeed(training("one"));
  const auto summary = program.json(training("two", "--processes 2"));
  CHECK(summary.at("steps") == 4);
  CHECK(lines_of(program.read("err")).size() < 20);
  CHECK((program.model_of("one") == program.model_of("two")));
  const std::string state = "/checkpoints/last/state.safetensors";
  CHECK((program.read("one" + state) == program.read("two" + state)));
  CHECK_FALSE(program.has("two/train.log.1"));
  program.succeed(training("two", "--processes 2 --resume"));  // the run is finished
}

TEST_CASE("several processes share an evaluation, with the scores of one process, and a measurement",
          "[cli][processes]") {
  const Program program;
  program.succeed(training("one"));
  const auto alone = program.json("evaluate --run one");
  for (const std::string processes : {"2", "3"})
    CHECK(program.json("evaluate --run one", {"--processes", processes}) == alone);
  const auto bench = program.json("bench step --config small.yaml --processes 2 --steps 2 --rounds 2 --warmup 1");
  CHECK(bench.at("processes") == 2);
  CHECK(bench.at("phases").at("reduce") > 0);
  CHECK(bench.at("all_reduce_ms") > 0);
  CHECK(bench.at("gradient_bytes") > 0);
}

TEST_CASE("an invalid config or a missing TMPDIR is one error for any number of processes", "[cli][processes]") {
  const Program program;
  program.refuse_in_one_line(training("run", "--processes 3 --set train.stepz=3"), 2, {"train.stepz"});
  program.refuse_in_one_line(training("run", "--processes 3"), 2, {"train.batch_size|multiple of 3"});
  const Variables variables{{"TMPDIR", "/no/such folder"}};
  program.refuse_in_one_line(training("run", "--processes 2"), 2, {"error: TMPDIR=/no/such folder: ", "No such file"});
  CHECK_FALSE(program.has("run"));
}

TEST_CASE("a signal to the program or to any process stops all of them, and the run can be resumed",
          "[cli][processes][stop]") {
  const Program program;
  const int number = GENERATE(SIGINT, SIGTERM);
  const int whom = GENERATE(-2, -1, 0, 1);  // -2: a training of one process; -1: the program itself
  const auto run = joined(training("run"), whom == -2 ? "" : "--processes 2");
  const auto pid = program.start(joined(run, endless));
  wait_for_checkpoint(program);
  ::kill(whom < 0 ? pid : children_of(pid).at(static_cast<std::size_t>(whom)), number);
  Program::check_refused(program.wait(pid), 128 + number, {});
  CHECK_THAT(program.read("run/train.log"), ContainsSubstring("go on with: metaformer train --resume run"));
  const auto step = program.read_json("run/checkpoints/last/meta.json").at("step").get<std::int64_t>();
  program.succeed(run, "--resume --set train.eval_interval=1000 --set train.checkpoint_interval=20 --set train.steps=" +
                           std::to_string(step + 2));
}

TEST_CASE("a SIGUSR1 during the start of processes is handled, and ends none of them", "[cli][processes][stop]") {
  const Program program;
  const bool several = GENERATE(true, false);
  const auto words = joined(training("run", "--set train.steps=40"), several ? "--processes 2" : "");
  // A process that starts with blocked signals unblocks them when it can handle them.
  const auto pid = program.start(words, "/dev/null", caught_signals());
  int sent = 0;
  const auto is_running = [&] {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  };
  while (is_running()) {
    for (const auto child : children_of(pid)) sent += ::kill(child, SIGUSR1) == 0;
    ::kill(pid, SIGUSR1);
    std::this_thread::sleep_for(3ms);
  }
  Program::check_refused(program.wait(pid), 0, {"as SIGUSR1 asked"});
  if (several) CHECK(sent > 10);
}

TEST_CASE("a stop signal during the start of a process ends it with the usual exit code", "[cli][processes][stop]") {
  const Program program;
  const int number = GENERATE(SIGINT, SIGTERM, SIGHUP);
  const std::string processes = GENERATE("--processes 2", "");
  const auto pid = program.start(training("run", joined(endless, processes)), "/dev/null", caught_signals());
  ::kill(pid, number);
  Program::check_refused(program.wait(pid), 128 + number, {});
}

TEST_CASE("several processes work if the program is process 1, as in a container", "[cli][processes]") {
  const Program program;
  const std::string unshare = "unshare --user --map-root-user --pid --fork --mount-proc ";
  if (program.shell(unshare + "true") != 0) return skip("no process namespaces here");
  std::string command = "exec " + unshare + "\"$PROGRAM\"";
  for (const auto& word : training("run", "--processes 2")) command += " '" + word + "'";
  const auto code = program.shell(command + " >out");
  INFO(program.read("err"));
  CHECK(code == 0);
  program.succeed(training("one"));
  CHECK((program.model_of("run") == program.model_of("one")));
}

TEST_CASE("processes end when the program that started them dies", "[cli][processes][stop]") {
  const Program program;
  const auto pid = program.start(training("run", joined(endless, "--processes 2")));
  wait_until([&] { return children_of(pid).size() == 2; });
  const auto children = children_of(pid);
  if (GENERATE(true, false)) wait_for_checkpoint(program);
  ::kill(pid, SIGKILL);
  program.wait(pid);
  for (const auto child : children)
    wait_until([&] {
      return ::kill(child, 0) != 0 ||
             read_text("/proc/" + std::to_string(child) + "/stat").find(") Z") != std::string::npos;
    });
}

TEST_CASE("the start-up time excludes the time of a shell that becomes the program", "[cli]") {
  const Program program;
  REQUIRE(program.shell("exec bash -c 'sleep 3 && exec \"$PROGRAM\" train --config small.yaml --out run'") == 0);
  const double seconds = program.read_json("run/summary.json").at("startup_seconds").get<double>();
  CHECK(seconds > 0.01);
  CHECK(seconds < 3);
}

TEST_CASE("a killed process ends the others, with one line on who was killed", "[cli][processes][stop]") {
  const Program program;
  const auto whom = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2});
  const auto pid =
      program.start(training("run", joined(endless, "--processes 3 --set train.batch_size=3 --process-timeout 20")));
  wait_for_checkpoint(program);
  ::kill(children_of(pid).at(whom), SIGKILL);
  Program::check_refused(program.wait(pid), 128 + SIGKILL,
                         {"rank " + std::to_string(whom) + " was killed by signal 9", "another process has ended"});
  CHECK_THAT(program.read(whom == 1 ? "run/train.log.2" : "run/train.log.1"),
             ContainsSubstring("another process has ended"));
}

TEST_CASE("the others wait for a process that hangs no longer than --process-timeout", "[cli][processes][stop]") {
  const Program program;
  const auto pid = program.start(training("run", joined(endless, "--processes 2 --process-timeout 3")));
  wait_for_checkpoint(program);
  ::kill(children_of(pid).at(1), SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  Program::check_refused(program.wait(pid), 6, {"0|2:|answered|3"});
  CHECK(std::chrono::steady_clock::now() - start < 30s);
}

TEST_CASE("processes with a launcher's environment form a group", "[cli][processes]") {
  const Program program;
  program.succeed(training("one"));
  const auto [launcher, rank_name, size_name, local_name] =
      GENERATE(table<std::string, std::string, std::string, std::string>(
          {{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
           {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
           {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}}));
  const Variables common{
      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", free_port()}, {"SLURM_STEP_ID", "0"}, {size_name, "2"}};
  std::vector<pid_t> started;
  for (const std::string rank : {"0", "1"}) {
    const Variables own{{rank_name, rank}, {local_name, rank}};
    started.push_back(program.start(training(launcher)));
  }
  for (const auto pid : started) CHECK(program.wait(pid).code == 0);
  CHECK((program.model_of("one") == program.model_of(launcher)));
}

TEST_CASE("the time limit and a stop signal also work if other processes do not answer or never start",
          "[cli][processes][stop]") {
  const Program program;
  const SilentPort silent;
  const auto start = std::chrono::steady_clock::now();
  const Variables torchrun{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}};
  SECTION("limit") {
    const Variables port{{"MASTER_PORT", GENERATE(true, false) ? std::to_string(silent.number()) : free_port()}};
    const auto result = program.run(training("run", "--process-timeout 1"));
    CHECK(result.code == 6);
    CHECK(result.err == "error: rank 1 of 2: another process has not answered for 1 s\n");
  }
  SECTION("stop") {
    const Variables port{{"MASTER_PORT", std::to_string(silent.number())}};
    const auto pid = program.start(training("run"));
    silent.wait_for_connection();
    ::kill(pid, SIGTERM);
    CHECK(program.wait(pid).code == 128 + SIGTERM);
  }
  CHECK(std::chrono::steady_clock::now() - start < 30s);
}
