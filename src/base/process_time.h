#pragma once
// How long this program has run.

namespace metaformer {

// Notes the time, unless that was done before. To be called before main; otherwise it is that of static initialisation.
void note_program_start();

// Not since the process began: a shell may have set up and built for half an hour before it became this program.
double seconds_since_program_start();

}  // namespace metaformer
