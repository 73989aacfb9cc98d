// Work on several threads.
#pragma once

#include <omp.h>

namespace bpeflow {

// Calls work(0), work(1), … work(parts - 1), each on a thread of its own if OpenMP has so many. `work` must not throw.
// With one part no thread is started: then this is safe in a forked child too, where OpenMP hangs if the parent has
// used it.
template <typename Work> void for_each_part(unsigned parts, const Work &work) {
    if (parts == 1) {
        work(0u);
        return;
    }
#pragma omp parallel for num_threads(static_cast<int>(parts)) schedule(static, 1)
    for (unsigned part = 0; part < parts; part++) work(part);
}

} // namespace bpeflow
