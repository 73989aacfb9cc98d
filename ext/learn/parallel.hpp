// Running work on several threads.
#pragma once

#include <omp.h>

#include <atomic>

namespace bpeflow {

// Call work(0), work(1), … work(parts - 1), each on its own thread if OpenMP provides enough. `work` must not throw.
// With one part no thread is started, so this is also safe in a forked child, where OpenMP hangs if the parent has used
// it.
template <typename Work> void for_each_part(unsigned parts, const Work &work) {
    if (parts == 1) {
        work(0u);
        return;
    }
#pragma omp parallel for num_threads(static_cast<int>(parts)) schedule(static, 1)
    for (unsigned part = 0; part < parts; part++) work(part);
}

// Call first(part) for all parts as above. When all have returned, call between() on one thread, and then second(part)
// for all parts. None may throw. Return false, without doing the rest, as soon as a call of first() or between() has
// returned false. One team of threads does everything: waking threads twice would take longer than a short list.
template <typename First, typename Between, typename Second>
bool for_each_part_twice(unsigned parts, const First &first, const Between &between, const Second &second) {
    std::atomic<bool> good = true;
#pragma omp parallel num_threads(static_cast<int>(parts))
    {
#pragma omp for schedule(static, 1)
        for (unsigned part = 0; part < parts; part++)
            if (!first(part)) good = false;
#pragma omp single
        good = good && between();
#pragma omp for schedule(static, 1)
        for (unsigned part = 0; part < parts; part++)
            if (good) second(part);
    }
    return good;
}

} // namespace bpeflow
