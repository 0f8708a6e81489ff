// Trainings of several processes, started by the program itself or as a launcher starts them.

#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <map>

#include "base/signals.h"
#include "cli/program.h"

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using metaformer::caught_signals;

Arguments training(const std::string& out, const Arguments& more = {}) {
  Arguments words = {"train", "--config",         "small.yaml", "--out", out, "--set", "train.accumulate=2",
                     "--set", "model.dropout=0.1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Long enough to be stopped or killed.
const Arguments endless = {"--set", "train.steps=100000",          "--set", "train.eval_interval=1000",
                           "--set", "train.checkpoint_interval=20"};

std::string model_of(const Program& program, const std::string& run) {
  return read_text(program.folder() / run / "checkpoints/last/model.safetensors");
}

std::string state_of(const Program& program, const std::string& run) {
  return read_text(program.folder() / run / "checkpoints/last/state.safetensors");
}

std::vector<pid_t> children_of(pid_t parent) {
  std::istringstream numbers(
      read_text("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; numbers >> child;) children.push_back(child);
  return children;
}

template <class Condition>
void wait_until(const Condition& condition) {
  for (int i = 0; i < 600 && !condition(); ++i) std::this_thread::sleep_for(50ms);
  REQUIRE(condition());
}

void wait_for_checkpoint(const Program& program, const std::string& run) {
  wait_until([&] { return fs::exists(program.folder() / run / "checkpoints/last"); });
}

// Environment variables for as long as it lives.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) : values_(values) {
    for (const auto& [name, value] : values_) setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& [name, value] : values_) unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> values_;
};

int free_port() {
  static int port = 23000 + static_cast<int>(getpid() % 5000);
  return ++port;
}

}  // namespace

TEST_CASE("commands that compute let waiting threads sleep soon, unless the user has chosen", "[processes]") {
  const Program program;
  const auto spins_with = [&](const std::map<std::string, std::string>& values) {
    const Variables variables(values);
    const auto pid = program.start({"bench", "step", "--config", "small.yaml", "--steps", "1000000"});
    wait_until([&] { return read_text(program.folder() / "err").find("threads, fp32") != std::string::npos; });
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

TEST_CASE("train --processes 2 trains what one process trains, to the byte, and says it once", "[cli][processes]") {
  const Program program;
  const std::map<std::string, std::string> threads = {{"OMP_NUM_THREADS", "1"}};
  const Variables one_thread(threads);  // norms add up gradients thread by thread
  program.succeed(training("one"));
  const auto result = program.run(training("two", {"--processes", "2", "--json"}));
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(nlohmann::json::parse(result.out).at("steps") == 4);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') < 20);
  CHECK((model_of(program, "one") == model_of(program, "two")));
  CHECK((state_of(program, "one") == state_of(program, "two")));
  CHECK_FALSE(fs::exists(program.folder() / "two/train.log.1"));
  program.succeed(training("two", {"--processes", "2", "--resume"}));  // which is finished
}

TEST_CASE("processes share an evaluation, whose metrics are those of one, and a measurement", "[cli][processes]") {
  const Program program;
  program.succeed(training("one"));
  const Arguments evaluation = {"evaluate", "--run", "one", "--json"};
  const auto alone = program.succeed(evaluation);
  for (const std::string processes : {"2", "3"}) {
    auto words = evaluation;
    words.insert(words.end(), {"--processes", processes});
    CHECK(program.succeed(words) == alone);
  }
  const auto bench =
      nlohmann::json::parse(program.succeed({"bench", "step", "--config", "small.yaml", "--processes", "2", "--steps",
                                             "2", "--rounds", "2", "--warmup", "1", "--json"}));
  CHECK(bench.at("processes") == 2);
  CHECK(bench.at("phases").at("reduce") > 0);
  CHECK(bench.at("all_reduce_ms") > 0);
  CHECK(bench.at("gradient_bytes") > 0);
}

TEST_CASE("a config that is not valid is one error, however many processes are asked for", "[cli][processes]") {
  const Program program;
  const auto typo = program.run(training("run", {"--processes", "3", "--set", "train.stepz=3"}));
  CHECK(typo.code == 2);
  CHECK(std::count(typo.err.begin(), typo.err.end(), '\n') == 1);
  const auto uneven = program.run(training("run", {"--processes", "3"}));
  CHECK(uneven.code == 2);
  CHECK_THAT(uneven.err, ContainsSubstring("train.batch_size must be a multiple of 3"));
  CHECK(std::count(uneven.err.begin(), uneven.err.end(), '\n') == 1);
  CHECK_FALSE(fs::exists(program.folder() / "run"));
}

TEST_CASE("a signal to the program or to any process stops all of them, and the run goes on",
          "[cli][processes][stop]") {
  const Program program;
  const int number = GENERATE(SIGINT, SIGTERM);
  const int whom = GENERATE(-1, 0, 1);
  const auto pid = program.start(
      training("run", {"--processes", "2", endless[0], endless[1], endless[2], endless[3], endless[4], endless[5]}));
  wait_for_checkpoint(program, "run");
  ::kill(whom < 0 ? pid : children_of(pid).at(static_cast<std::size_t>(whom)), number);
  const auto result = program.wait(pid);
  INFO(result.err);
  CHECK(result.code == 128 + number);
  CHECK_THAT(read_text(program.folder() / "run/train.log"), ContainsSubstring("go on with --resume"));
  // Wherever it has stopped: with as many steps again it ends as an undisturbed one.
  const auto progress = nlohmann::json::parse(read_text(program.folder() / "run/checkpoints/last/meta.json"));
  CHECK(progress.dump().find("\"step\"") != std::string::npos);
}

TEST_CASE("signals that come while processes start are answered, and end nothing by themselves",
          "[cli][processes][stop]") {
  const Program program;
  Arguments words = training("run", {"--set", "train.steps=40"});
  const bool several = GENERATE(true, false);
  if (several) words.insert(words.end(), {"--processes", "2"});
  // A process that is started with them blocked unblocks them when it can answer.
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
  const auto result = program.wait(pid);
  INFO(result.err);
  CHECK(result.code == 0);
  if (several) CHECK(sent > 10);
  CHECK_THAT(result.err, ContainsSubstring("as SIGUSR1 asked"));
}

TEST_CASE("a stop that comes while a process starts ends it with the usual code", "[cli][processes][stop]") {
  const Program program;
  const int number = GENERATE(SIGINT, SIGTERM, SIGHUP);
  Arguments words = training("run", endless);
  if (GENERATE(true, false)) words.insert(words.end(), {"--processes", "2"});
  const auto pid = program.start(words, "/dev/null", caught_signals());
  ::kill(pid, number);
  const auto result = program.wait(pid);
  INFO(result.err);
  CHECK(result.code == 128 + number);
}

TEST_CASE("processes work where the program is process 1, as in a container", "[cli][processes]") {
  const Program program;
  const std::string unshare = "unshare --user --map-root-user --pid --fork --mount-proc ";
  if (std::system((unshare + "true 2>/dev/null").c_str()) != 0) return skip("no process namespaces here");
  const auto in_namespace = [&](const Arguments& arguments) {
    std::string command = "cd '" + program.folder().path().string() + "' && exec " + unshare + METAFORMER_PROGRAM;
    for (const auto& word : arguments) command += " '" + word + "'";
    return WEXITSTATUS(std::system((command + " >out 2>err").c_str()));
  };
  const auto code = in_namespace(training("run", {"--processes", "2"}));
  INFO(read_text(program.folder() / "err"));
  CHECK(code == 0);
  program.succeed(training("one"));
  CHECK((model_of(program, "run") == model_of(program, "one")));
}

TEST_CASE("processes end with the one that started them", "[cli][processes][stop]") {
  const Program program;
  Arguments words = training("run", endless);
  words.insert(words.end(), {"--processes", "2"});
  const auto pid = program.start(words);
  wait_until([&] { return children_of(pid).size() == 2; });
  const auto children = children_of(pid);
  if (GENERATE(true, false)) wait_for_checkpoint(program, "run");
  ::kill(pid, SIGKILL);
  program.wait(pid);
  for (const auto child : children)
    wait_until([&] {
      return ::kill(child, 0) != 0 ||
             read_text("/proc/" + std::to_string(child) + "/stat").find(") Z") != std::string::npos;
    });
}

TEST_CASE("the time of a shell that becomes the program is no start-up", "[cli]") {
  const Program program;
  const std::string command = "cd '" + program.folder().path().string() +
                              "' && sleep 3 && exec " METAFORMER_PROGRAM " train --config small.yaml --out run 2>err";
  REQUIRE(std::system(("exec bash -c \"" + command + "\"").c_str()) == 0);
  const double seconds =
      nlohmann::json::parse(read_text(program.folder() / "run/summary.json")).at("startup_seconds").get<double>();
  CHECK(seconds > 0.01);
  CHECK(seconds < 3);
}

TEST_CASE("a process that is killed ends the others with one clear line, and the run goes on",
          "[cli][processes][stop]") {
  const Program program;
  const auto whom = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2});
  Arguments words = training("run", endless);
  words.insert(words.end(), {"--processes", "3", "--set", "train.batch_size=3", "--process-timeout", "20"});
  const auto pid = program.start(words);
  wait_for_checkpoint(program, "run");
  ::kill(children_of(pid).at(whom), SIGKILL);
  const auto result = program.wait(pid);
  INFO(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK_THAT(result.err, ContainsSubstring("rank " + std::to_string(whom) + " was killed by signal 9"));
  CHECK_THAT(result.err, ContainsSubstring("another process has ended"));
  const auto log = program.folder() / "run" / (whom == 1 ? "train.log.2" : "train.log.1");
  CHECK_THAT(read_text(log), ContainsSubstring("another process has ended"));
}

TEST_CASE("a process that hangs is given up after --process-timeout", "[cli][processes][stop]") {
  const Program program;
  Arguments words = training("run", endless);
  words.insert(words.end(), {"--processes", "2", "--process-timeout", "3"});
  const auto pid = program.start(words);
  wait_for_checkpoint(program, "run");
  ::kill(children_of(pid).at(1), SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  const auto result = program.wait(pid);
  INFO(result.err);
  CHECK(result.code == 6);
  CHECK_THAT(result.err, ContainsSubstring("rank 0 of 2: another process has not answered for 3 s"));
  CHECK(std::chrono::steady_clock::now() - start < 30s);
}

TEST_CASE("a launcher's environment makes processes a group", "[cli][processes]") {
  const Program program;
  program.succeed(training("one"));
  const auto port = std::to_string(free_port());
  using Names = std::map<std::string, std::string>;
  const auto names = GENERATE(values<Names>(
      {{{"rank", "RANK"}, {"size", "WORLD_SIZE"}, {"local", "LOCAL_RANK"}, {"run", "torchrun"}},
       {{"rank", "OMPI_COMM_WORLD_RANK"},
        {"size", "OMPI_COMM_WORLD_SIZE"},
        {"local", "OMPI_COMM_WORLD_LOCAL_RANK"},
        {"run", "mpirun"}},
       {{"rank", "SLURM_PROCID"}, {"size", "SLURM_NTASKS"}, {"local", "SLURM_LOCALID"}, {"run", "srun"}}}));
  const Variables common(
      {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}, {"SLURM_STEP_ID", "0"}, {names.at("size"), "2"}});
  const auto start = [&](const std::string& rank) {
    const Variables own({{names.at("rank"), rank}, {names.at("local"), rank}});
    return program.start(training(names.at("run")));
  };
  const auto first = start("0"), second = start("1");
  CHECK(program.wait(first).code == 0);
  CHECK(program.wait(second).code == 0);
  CHECK((model_of(program, "one") == model_of(program, names.at("run"))));
}

TEST_CASE("the time limit and a stop cover a port that accepts and says nothing", "[cli][processes][stop]") {
  const Program program;
  const int silent = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(silent, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(silent, 16) == 0);
  REQUIRE(::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const Variables torchrun({{"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "127.0.0.1"},
                            {"MASTER_PORT", std::to_string(ntohs(address.sin_port))}});
  const auto start = std::chrono::steady_clock::now();
  SECTION("limit") {
    const auto result = program.run(training("run", {"--process-timeout", "1"}));
    CHECK(result.code == 6);
    CHECK(result.err == "error: rank 1 of 2: another process has not answered for 1 s\n");
  }
  SECTION("stop") {
    const auto pid = program.start(training("run"));
    std::this_thread::sleep_for(3s);
    ::kill(pid, SIGTERM);
    CHECK(program.wait(pid).code == 128 + SIGTERM);
  }
  CHECK(std::chrono::steady_clock::now() - start < 30s);
  ::close(silent);
}

TEST_CASE("one process needs no address", "[cli][processes]") {
  const Program program;
  const Variables container({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  program.succeed(training("run"));
  program.succeed(training("two", {"--processes", "2"}));
}

TEST_CASE("a process whose others never come says so in one line", "[cli][processes]") {
  const Program program;
  const Variables torchrun(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(free_port())}});
  const auto result = program.run(training("run", {"--process-timeout", "1"}));
  CHECK(result.code == 6);
  CHECK(result.err == "error: rank 1 of 2: another process has not answered for 1 s\n");
}
