#include "cli/working_folder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

static bool is_gone = false;
static char path[PATH_MAX];

// LibTorch's MKL asks for the working folder while libraries are initialised, and ends the process without one. This
// runs before: main() can then say what is wrong. No sanitizer has begun yet, hence a system call and no variable on
// the stack.
__attribute__((no_sanitize_address)) static void look_before_libraries_start(int, char**, char**) {
  if (syscall(SYS_getcwd, path, sizeof(path)) >= 0) return;
  is_gone = chdir("/") == 0;
}

__attribute__((section(".preinit_array"), used)) static void (*entry)(int, char**,
                                                                      char**) = look_before_libraries_start;

namespace metaformer {

bool working_folder_is_gone() { return is_gone; }

}  // namespace metaformer
