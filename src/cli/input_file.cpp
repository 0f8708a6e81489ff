#include "cli/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"

namespace metaformer {

InputFile::InputFile(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  if (path != "-") descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw Error(ExitCode::data, fmt::format("{}: {}", in_quotes(path), std::strerror(errno)));
}

InputFile::InputFile(const std::string& name, const std::string& content)
    : name_(name), descriptor_(::memfd_create("texts", MFD_CLOEXEC)) {
  std::size_t done = 0;
  for (ssize_t count = 1; descriptor_ >= 0 && done < content.size() && count > 0;
       done += static_cast<std::size_t>(count))
    count = std::max<ssize_t>(::write(descriptor_, content.data() + done, content.size() - done), 0);
  if (descriptor_ >= 0 && done == content.size() && ::lseek(descriptor_, 0, SEEK_SET) == 0) return;
  if (descriptor_ >= 0) ::close(descriptor_);
  throw Error(ExitCode::out_of_memory, fmt::format("{}: no memory to hold {}", name, human_bytes(content.size())));
}

InputFile::~InputFile() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

std::string InputFile::read_to_end() const {
  constexpr int patience = 200;  // a signal that comes just before waiting begins is noticed this much later
  constexpr std::size_t piece = 1 << 20;
  std::string content;
  pollfd request = {.fd = descriptor_, .events = POLLIN, .revents = 0};
  for (;;) {
    throw_if_stopped();
    if (::poll(&request, 1, patience) <= 0) continue;
    const auto before = content.size();
    content.resize(before + piece);
    const auto count = ::read(descriptor_, content.data() + before, piece);
    content.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return content;
    if (count < 0 && errno != EINTR && errno != EAGAIN)
      throw Error(ExitCode::data, fmt::format("{}: cannot be read: {}", name_, std::strerror(errno)));
  }
}

}  // namespace metaformer
