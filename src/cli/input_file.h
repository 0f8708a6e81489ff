#pragma once
// A descriptor of a file, of standard input, or of a file in memory.

#include <unistd.h>

#include <string>

namespace metaformer {

class InputFile {
 public:
  // "-": standard input. Errors: exit code 3.
  explicit InputFile(const std::string& path);

  // A file in memory. Errors: exit code 5.
  InputFile(const std::string& name, const std::string& content);

  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }  // for messages

  // Reads a file to its end, or a pipe until it is closed. Errors: exit code 3. Throws Interrupted when a signal asks
  // to stop.
  std::string read_to_end() const;

 private:
  std::string name_;
  int descriptor_ = STDIN_FILENO;
};

}  // namespace metaformer
