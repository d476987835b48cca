/* Runs a program and prints the most memory it had resident, in KiB, on standard output.
 *
 * usage: peak PROGRAM [ARGUMENT...]
 *
 * A program of its own, and a small one, because a child starts with the peak of the
 * process that started it (setmax_mm_hiwater_rss() in exec_mmap(), fs/exec.c). The child's
 * own output goes to standard error. */
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

int main(int count, char **words)
{
    if (count < 2) {
        fputs("usage: peak PROGRAM [ARGUMENT...]\n", stderr);
        return 2;
    }
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, 2, 1);
    pid_t child;
    if (posix_spawn(&child, words[1], &files, NULL, words + 1, environ) != 0) {
        fprintf(stderr, "peak: failed to run %s\n", words[1]);
        return 1;
    }
    int status;
    struct rusage used;
    if (wait4(child, &status, 0, &used) != child) {
        perror("peak: failed to wait");
        return 1;
    }
    printf("%ld\n", used.ru_maxrss);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
