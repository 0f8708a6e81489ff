#include "attention/mixers.h"
#include "cli/command_line.h"

int main(int argc, char** argv) {
  metaformer::register_mixers();
  return metaformer::run_command_line(argc, argv);
}
