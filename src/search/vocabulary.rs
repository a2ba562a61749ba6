//! Words as people say them → words as tools say them.
//!
//! General vocabulary of software tools, by what they are about; of no server in particular. A row says: whoever uses a
//! word or phrase of the left side may mean a tool that uses words of the right side. Read once, by `index`.
//!
//! Long, and one thing: it is a table.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::words::{is_small, stem, words};

/// Left: words and phrases, with commas between. Right: words.
const ROWS: &[(&str, &str)] = &[
    // What is done.
    ("make, build, produce, set up", "create generate init new"),
    ("create, generate, compose, craft, design, prepare", "create generate new build"),
    ("add, insert, append, put, include, attach", "add insert append create"),
    (
        "remove, erase, drop, get rid of, throw away, trash, wipe, discard, purge, kill, delete, obsolete, unwanted",
        "delete remove clear drop",
    ),
    (
        "change, modify, alter, adjust, bump, tweak, correct, fix, amend, update, revise, rewrite, touch up",
        "edit update modify change set",
    ),
    ("replace, substitute, swap, swap out, exchange", "replace edit update"),
    ("overwrite, save, dump", "write save overwrite"),
    ("show, display, view, look at, see, inspect, examine, print, peek, reveal, present", "show get view read display"),
    ("find, look for, locate, where, hunt, seek, discover, track down, search, lookup, look up", "search find query"),
    ("list, enumerate, which, what are, all the, overview, every, available, existing", "list all"),
    ("get, obtain, retrieve, grab, give me, tell me", "get fetch read retrieve"),
    ("read, contents, content, text of, what does it say", "read get content contents"),
    ("write, put down, type out", "write create"),
    ("run, execute, launch, invoke, perform, trigger", "run execute evaluate trigger"),
    ("start, begin, kick off, turn on, switch on, enable, activate", "start begin enable toggle"),
    (
        "stop, end, finish, halt, abort, quit, turn off, switch off, disable, terminate",
        "stop end close disable toggle cancel",
    ),
    ("close, shut, dismiss", "close dismiss"),
    ("send, submit, post, deliver, transmit", "send submit post"),
    (
        "rename, relocate, transfer, another name, move, called, should be called, call it, new name, different name",
        "move rename",
    ),
    ("copy, duplicate, replicate", "copy duplicate clone"),
    (
        "undo, revert, roll back, take back, go back to, throw out, back out, unstage",
        "reset revert restore undo unstage",
    ),
    (
        "restore, recover, lost, bring back, rescue, accidentally, by mistake, work back, vanished, deleted by mistake, want it back",
        "restore recover recovering reflog",
    ),
    (
        "compare, versus, difference, differ, what changed, has changed, changes between, changed",
        "diff compare difference changes",
    ),
    ("combine, unite, bring together, integrate, consolidate", "merge join combine integrate"),
    ("convert, turn into, transform, export", "convert transform"),
    (
        "compute, work out, math, maths, arithmetic, plus, times, percent, multiply, divide, minus, equation, formula, square root, how much is",
        "calculate sum expression evaluates",
    ),
    ("sum, total, add up, altogether", "sum total calculate"),
    ("wait, pause, until, sleep, delay, hold on", "wait"),
    ("choose, pick, opt", "select option choose"),
    ("check, verify, validate, test, make sure", "check verify test status validate"),
    ("analyze, analyse, study, investigate, diagnose, debug, explore", "analyze analysis insight debug inspect"),
    ("summarize, summarise, digest, gist", "summary summarize overview"),
    (
        "suggest, suggestion, propose, recommendation, advise, similar, related, further reading, what else",
        "recommend recommendations related suggest",
    ),
    ("repeat, say back, mirror, parrot", "echo"),
    ("download, off the internet", "fetch download pull"),
    ("upload, attach a file", "upload push file"),
    ("publish, share, release", "push publish share release"),
    ("sync, synchronize, bring up to date, newest, catch up", "pull fetch sync update"),
    ("ask, question, inquire", "query ask search"),
    ("simulate, pretend, fake, mimic, imitate, act as", "emulate simulate simulated"),
    ("organize, sort, arrange, order", "sort order move arrange"),
    ("prompt the user, ask the user, user input", "elicitation input"),
    ("speed up, optimize, optimise, improve", "performance optimize insight audit"),
    ("clean up, tidy, leftover, leftovers, junk, clutter", "clean remove delete untracked"),
    ("set, configure, default, fix the", "set configure"),
    ("forget, unlearn", "delete remove memory clear"),
    // Files.
    ("folder, dir, subfolder, directory, location on disk", "directory folder path"),
    (
        "subfolders, subdirectories, nested, levels deep, everything below, below, under",
        "recursive tree subdirectories directory",
    ),
    (
        "file, document, doc, documents, script, source file, config, configuration, manuscript, letter, report, readme, log",
        "file text document",
    ),
    ("disk, drive, computer, laptop, machine, hard drive, filesystem, home folder", "file directory system path"),
    ("photo, picture, pic, image, jpeg, jpg, png, photograph, logo, icon, artwork", "image media picture screenshot"),
    ("sound, song, music, mp3, voice, wav, podcast", "audio media"),
    ("movie, clip, film, mp4, video", "video screencast media"),
    ("base64, binary", "base64 media binary"),
    (
        "large, big, huge, biggest, larger, heavy, size, space, megabytes, gigabytes, mb, gb, kb, disk usage, takes up, how big, bigger, smaller, gigantic, enormous, tiny, how long is the file",
        "size sizes bytes",
    ),
    (
        "beginning, top, first lines, first few, opening lines, preview, start of, first rows, first dozen, dozen lines",
        "head first beginning",
    ),
    ("tail, last lines, last few, newest lines, bottom, end of", "tail last end"),
    ("line, lines, line number, range of lines", "lines line offset"),
    ("structure, hierarchy, layout, outline, organized", "tree hierarchical structure"),
    ("archive, compress, pack, bundle, tarball, zip, shrink", "zip archive compress gzip"),
    ("unpack, extract, decompress, unarchive, unzip, inflate", "unzip extract"),
    ("gz, gzipped", "gzip compress"),
    ("empty, blank, nothing in, vacant", "empty"),
    ("duplicate, duplicates, twice, identical, redundant, the same, copies", "duplicate"),
    (
        "permission, allowed, access, rights, may, permitted, sandbox, may you, are you allowed, able to",
        "allowed permission access permissions",
    ),
    (
        "metadata, last modified, touched, last changed, age, creation date, created, details, properties, how old, owner, modified",
        "info metadata modified details",
    ),
    (
        "grep, occurrence, occurrences, mentions, mentioned, contains, containing, regex, regular expression, appears in, inside files, phrase",
        "search content pattern regex text",
    ),
    ("code base, codebase, source code, sources", "files content source code directory repository"),
    (
        "several, multiple, many, at once, in one go, simultaneously, batch, bunch, both, together",
        "multiple simultaneously",
    ),
    ("pattern, wildcard, glob, extension, ending in", "pattern glob matching search"),
    ("paragraph, sentence, passage, typo, wording", "text edit content"),
    ("version number", "file edit version"),
    ("excel, xls, xlsx, workbook, google sheet, pivot", "spreadsheet table pivot"),
    ("csv, tabular", "table csv data spreadsheet"),
    ("word, docx, powerpoint, pptx, slides, pdf, epub, html", "document convert resource file"),
    ("md", "markdown"),
    // Version control.
    ("version control, source control, repo, vcs, repository, revision control", "git repository"),
    ("commit, check in, record, save my work, save my changes, snapshot", "commit records staged"),
    ("pending, uncommitted, not committed, dirty, unsaved", "status uncommitted unstaged untracked changes"),
    (
        "history, past, timeline, previous, earlier, recent, chronological, latest commits, what happened, last, most recent, so far, log of",
        "log history recent",
    ),
    (
        "who wrote, who changed, wrote this, author, authorship, responsible, whose, culprit, introduced this line, last edited this line, annotate",
        "blame author authorship",
    ),
    ("park, set aside, shelve, temporarily, unfinished, for later, out of the way, half written, in progress", "stash"),
    (
        "mark, label, milestone, version mark, release point, name this version, current state, name this, freeze",
        "tag mark tags",
    ),
    (
        "share my commits, send my commits, push, put online, others should see, available to others, make available, hand in",
        "push remote upload",
    ),
    ("latest, upstream, colleague, teammate, teammates, incoming", "pull fetch remote"),
    ("switch, go to branch, change branch, change branches, jump to", "checkout switch branch branches"),
    ("parallel, second copy, side by side checkouts, at the same time", "worktree worktrees parallel"),
    (
        "get a copy of the project, copy of the repository, download repository, download the repository, check out a project, github, gitlab, bitbucket, local copy, to my machine",
        "clone repository",
    ),
    (
        "one single commit, single commit, just that commit, just one commit, specific commit, single fix, one fix, take over, one particular commit, backport",
        "cherry pick commit",
    ),
    ("linear, replay, on top of, tidy history, squash, reorder commits, behind, newest state", "rebase squash"),
    ("release notes, what is new, news of a release, changes since", "changelog tags log"),
    ("patch, change set, changeset, introduced", "diff show patch"),
    ("origin, fork", "remote url"),
    ("index, staging area, next commit, stage", "staging staged stage add unstages index"),
    ("main, master, trunk, feature line, line of development", "branch branches"),
    ("ref, refs, head moved", "reflog reference"),
    ("hash, sha", "commit hash"),
    ("working directory, project folder, current project", "working directory"),
    ("wrap up, wind up, sign off, close the session", "wrap wrapup status"),
    ("contains this commit, branches contain", "contains branch"),
    // Browsers and pages.
    ("website, site, web page, webpage, homepage, landing page, web app, web", "page browser web url"),
    ("tab, tabs, window", "tab page tabs browser window"),
    ("visit, surf, browse, go to, open the site, load the page, address bar", "navigate url page"),
    ("popup, pop up, alert, modal, message box, confirmation, are you sure, javascript alert", "dialog"),
    ("dropdown, drop down, menu, combo box, combobox, list box, from the list", "select option dropdown"),
    ("checkbox, tick, check the box, radio button, radio", "checkboxes form fill click"),
    ("press, tap, hit, click, push the button, button, follow the link", "click press"),
    (
        "keyboard, shortcut, hotkey, ctrl, cmd, escape key, enter key, hit enter, key combination, keystroke",
        "key press keyboard",
    ),
    ("type, enter, fill in, fill out, input, field, text box, textbox, search box", "type fill input text form"),
    (
        "form, sign up, signup, log in, login, sign in, register, registration, credentials, password, username, questionnaire, checkout form",
        "form fill fields",
    ),
    ("mouse over, mouseover, tooltip, pointer, hovering, cursor over, help text, rests on", "hover mouse"),
    ("drag, reorder, slider, slide", "drag drop element"),
    (
        "window size, viewport, smaller, narrow, wide, screen size, responsive, dimensions, pixels, width",
        "resize window viewport emulate dimensions",
    ),
    ("mobile, phone, smartphone, iphone, android, tablet, device", "emulate resize viewport mobile"),
    (
        "dark mode, light mode, dark, colour scheme, night mode, theme, reduced motion, high contrast",
        "color scheme emulate media dark",
    ),
    (
        "offline, slow connection, 3g, 4g, bad connection, throttle, throttling, slow network, gps, geolocation, user agent, connection is bad, poor connection, weak signal, no internet",
        "emulate network geolocation throttling",
    ),
    (
        "screenshot, screen shot, screen capture, capture the screen, what it looks like, how it looks, picture of the page, visible part",
        "screenshot take",
    ),
    ("screen recording, screencast, record the screen, record a video, filming", "screencast recording video"),
    (
        "leak, memory leak, ram, memory usage, eats memory, memory consumption, heap, garbage",
        "heap memory heapsnapshot leaks",
    ),
    (
        "slow, sluggish, lag, laggy, speed, load time, loading time, jank, stutter, faster, takes forever, freeze, freezes, fast, bottleneck, page load",
        "performance trace insight",
    ),
    (
        "seo, google, rank, ranking, search engine, search engines, quality score, best practices, blind, screen reader, disabled users, a11y, usability",
        "lighthouse audit accessibility seo",
    ),
    (
        "xhr, ajax, api calls, api call, http calls, http request, traffic, backend calls, response body, response headers, status code, payload, endpoint, calls to the server, failed requests, backend, server answer, server answered, http, requests",
        "network request requests",
    ),
    (
        "js errors, javascript error, javascript errors, error messages, warnings, exceptions, console, logged, devtools, page errors, threw, stack trace",
        "console messages message errors",
    ),
    ("javascript, js, snippet, code in the page, dom, ecmascript", "javascript evaluate script code"),
    ("css, style, styling, font, margin, padding, colour of, color of, stylesheet", "css styles rules"),
    ("back, previous page, page before, return to", "back navigate history"),
    ("reload, refresh, f5", "reload navigate"),
    (
        "appear, shows up, visible, loaded, disappears, disappear, spinner, is there, finished loading",
        "appear wait disappear",
    ),
    (
        "elements on the page, accessible, buttons and links, what is on the page, structure of the page, interactive elements",
        "snapshot accessibility elements",
    ),
    ("trace, profiling, profile, profiler, flame", "trace performance"),
    ("find on the page, ctrl f", "find page snapshot"),
    // Charts and diagrams.
    (
        "chart, graph, plot, diagram, figure, visual, visualize, visualise, draw, illustrate, depict, sketch, infographic, graphically",
        "chart diagram visualize generate graph",
    ),
    (
        "share, portion, breakdown, proportion, slices, composition, parts of a whole, market share, make up",
        "pie proportion share",
    ),
    (
        "trend, over time, development, growth, month by month, per month, per year, over the years, day by day, rise and fall, curve, year after year, every year, since, annually, monthly, yearly, revenue, sales, over the months, changed over",
        "line trends time area",
    ),
    ("cumulative, went from, bridge, gains and losses, ups and downs", "waterfall cumulative positive negative"),
    (
        "correlation, correlate, connection between, depends on, related to, relation between, relationship between, influence, affect",
        "scatter correlation relationship variables",
    ),
    (
        "spread, outlier, outliers, median, quartile, quartiles, scatter of values, variance, spread out, box and whisker, whisker, box plot",
        "boxplot violin distribution",
    ),
    ("density, shape of the distribution", "violin density distribution"),
    (
        "distribution, distributed, frequency, how often, bins, buckets, age groups, bracket, brackets, how many people, range, ranges, intervals",
        "histogram frequency distribution",
    ),
    (
        "conversion, drop off, drop out, dropout, stages, each step, signups to purchase, visitors, leads, pipeline, applicants, applications, candidates, prospects, funnel",
        "funnel stages conversion",
    ),
    ("flows from, energy flow, flows into, from source to, money flow, streams", "sankey flow"),
    (
        "org chart, reports to, boss, hierarchy, company structure, team structure, manager, managers, subordinate, ceo, staff",
        "organization hierarchical",
    ),
    ("brainstorm, ideas, topics, central topic, thoughts on, mindmap", "mind map"),
    (
        "cause, causes, root cause, reasons, ishikawa, why did, contributing factors, effects",
        "fishbone cause causes effects",
    ),
    (
        "process, workflow, decision, decisions, procedure, flowchart, flow chart, approval, steps of",
        "flow diagram process decision",
    ),
    (
        "overlap, in common, intersection, intersect, sets, belong to both, shared by, both groups",
        "venn overlap intersect",
    ),
    (
        "dimensions, skills, strengths, strengths and weaknesses, spider, criteria, several criteria, spider web",
        "radar multidimensional dimensions",
    ),
    (
        "progress, completion, fill level, full, gauge, percent done, how full, tank, complete, per cent, percentage",
        "liquid percentage percent",
    ),
    ("most common words, tags, tag cloud, terms, buzzwords, frequent words, words people use", "word cloud frequency"),
    (
        "places, stores, shops, pins, addresses, cities, markers, marker, coordinates, points, points of interest, attractions, offices, map",
        "map pin point location",
    ),
    ("route, trip, itinerary, way from, travel, journey, road trip, tour, hike", "route path map travel"),
    (
        "region, regions, provinces, province, districts, countries, states, by state, by country, administrative",
        "district regional map",
    ),
    (
        "friends, social network, links between, connections, connected, relationships, nodes and edges, follows, followers, who follows, knows",
        "network graph relationships nodes",
    ),
    ("horizontal bars, horizontally, ranking list, bars, league table", "bar horizontal"),
    ("vertical bars, columns, vertically, upright bars", "column vertical"),
    ("two axes, second axis, different units, two scales, bars and a line, secondary axis", "dual axes combination"),
    ("nested boxes, rectangles, nested rectangles, proportional boxes", "treemap hierarchical"),
    ("cross tab, crosstab, rows and columns, grid", "spreadsheet pivot tabular table"),
    ("stacked, area under, filled", "area stack"),
    // Time and numbers.
    ("clock, now, what time, oclock, today, date, time is it", "current time"),
    (
        "time zone, timezones, local time, hours ahead, abroad, utc, gmt, berlin, tokyo, new york, london, sydney, paris",
        "timezone time convert",
    ),
    // Databases.
    ("database, db, sqlite, postgres, mysql, records, sql", "database table query sql"),
    ("rows, select, look at the data", "select query read table"),
    (
        "columns of, fields of, column types, structure of the table, schema, columns, what columns",
        "schema describe table",
    ),
    ("new row, insert a row, update a row, delete a row, a row, rows, record, entry", "write insert update query"),
    ("finding, conclusion, lesson, learned, takeaway, business", "insight memo"),
    // Knowledge, documents, the web.
    (
        "remember, memorize, memorise, keep in mind, dont forget, make a note, note that, store the fact, jot, long term, preference, prefers, learn that, next time, for the future, from now on, keep track, keep that, for later, in future",
        "memory knowledge observations entities add create",
    ),
    (
        "recall, what do you know, what do we know, told you, earlier conversation, everything you remember, everything you know, know about",
        "knowledge graph nodes search read memory",
    ),
    ("fact, facts, observation, note, notes", "observations knowledge entities"),
    ("person, people, thing, concept, project, customer", "entities entity nodes"),
    (
        "relation, relationship, related, works for, belongs to, married to, link between, is part of, connected to",
        "relations relationship relation",
    ),
    (
        "docs, manual, reference, guide, tutorial, how do i, how to, how can i, explained, documentation, instructions for",
        "documentation docs",
    ),
    ("s3, ec2, lambda, amazon, bucket, dynamodb, cloudfront, iam, vpc, rds, cloudwatch", "aws documentation"),
    ("azure, entra", "azure microsoft"),
    ("gcp, google cloud, bigquery", "google cloud"),
    (
        "library, package, framework, sdk, dependency, npm, pip, api examples, code examples, code example, up to date examples, nextjs, next js, django, react, vue, hook, arguments of, signature, parameters of, api, pandas, numpy, express, spring, tailwind, typescript, laravel, rails, flask",
        "library docs code framework package",
    ),
    (
        "internet, online, google for, google it, news, world wide web, look up, find out, current events, latest news, wikipedia, newest about, latest about, recently, in the news",
        "search web internet",
    ),
    ("article, blog, blog post, url, link, this address, web address, http", "url fetch page content link"),
    (
        "shortened, redirect, real address, full address, where does the link, short link, original link",
        "expand link url",
    ),
    ("section, chapter, heading, part of the page", "section sections"),
    (
        "component, ui, user interface, frontend, widget, dashboard, react component, material design, mui",
        "react code ui material",
    ),
    ("figma, mockup, wireframe", "design figma"),
    (
        "reason, step by step, think through, think, ponder, hard problem, complicated problem, puzzle, reflect, deliberate, plan, break down, brain teaser, riddle, carefully, several steps, logic, tricky, weigh, pros and cons, options, think about it",
        "thinking thoughts problem sequential reasoning",
    ),
    ("research, deep dive, thorough", "research"),
    (
        "money, spending, funding, startup, expenses, finance, financial, cost, costs, budget, allocate",
        "budget allocation",
    ),
    // Code and its surroundings.
    (
        "code style, code quality, static analysis, semicolons, unused variable, unused variables, style guide, style rules, linter, coding conventions, code smells, style problems, mistakes in the code, code problems, problems in the code, coding errors, formatting rules",
        "lint eslint",
    ),
    ("environment variable, environment variables, env, path variable, shell variable", "env environment variables"),
    ("logging, logs, log messages", "log logging messages"),
    ("notify, notification, tell me when", "notification subscribe updates message"),
    (
        "error, failure, crash, broken, bug, exception, fault, faults, went wrong",
        "error errors issue messages console log",
    ),
    ("long running, slow task, takes a while, background", "long running operation progress"),
    ("shell, terminal, command line, bash, command", "shell command terminal execute"),
    ("unit test, tests, test suite", "test tests run"),
    ("deploy, rollout, ship", "deploy deployment release"),
    ("docker, container, containers", "container docker image"),
    ("kubernetes, k8s, pod, pods, cluster", "kubernetes pod cluster namespace"),
    ("vm, virtual machine, instance, server", "instance server machine"),
    ("secret, api key, token, vault", "secret key credential"),
    ("cron, recurring, every day", "schedule job cron"),
    // Work with others.
    ("mail, e mail, inbox, newsletter", "email mail message"),
    ("chat, dm, slack, teams, discord, channel", "message channel chat"),
    ("meeting, appointment, event, schedule, calendar", "calendar event schedule meeting"),
    ("ticket, todo, to do, issue, story, backlog, task", "issue ticket task"),
    ("pr, code review, merge request, pull request", "pull request review merge"),
    ("comment, reply, respond, answer", "comment reply"),
    ("wiki, confluence, notion", "page document wiki"),
    ("invoice, bill, charge, payment, refund, subscription", "payment invoice charge subscription"),
    ("client, buyer, account, lead", "customer contact account"),
    ("address book, contacts", "contact"),
    ("translate, translation, in japanese, in german, in french", "translate language"),
    ("weather, rain, forecast", "weather forecast"),
    ("lights, lamp, thermostat, smart home", "light device home"),
    ("flight, hotel, booking, reserve", "booking flight hotel"),
];

/// What a word or phrase may stand for.
pub(super) struct Vocabulary {
    /// By stems, a blank between.
    meant: HashMap<String, Vec<String>>,
    /// Every word of the table that is long enough to be a part of another.
    parts: std::collections::HashSet<String>,
    /// The longest phrase, in words.
    longest: usize,
}

impl Vocabulary {
    /// The table above.
    pub(super) fn get() -> &'static Self {
        static TABLE: OnceLock<Vocabulary> = OnceLock::new();
        TABLE.get_or_init(|| Self::read(ROWS))
    }

    fn read(rows: &[(&str, &str)]) -> Self {
        let mut table = Self { meant: HashMap::new(), parts: std::collections::HashSet::new(), longest: 1 };
        let stems = |text: &str| {
            let mut found = Vec::new();
            words(text, |word| found.push(stem(word)));
            found
        };
        for (said, tools) in rows {
            for text in [said, tools] {
                words(text, |word| {
                    if word.len() >= 3 && !is_small(word) {
                        table.parts.insert(word.to_owned());
                    }
                });
            }
            let tools = stems(tools);
            for said in said.split(',') {
                let said = stems(said);
                table.longest = table.longest.max(said.len());
                let meant = table.meant.entry(said.join(" ")).or_default();
                meant.extend(tools.iter().filter(|word| said.len() > 1 || **word != said[0]).cloned());
                meant.dedup();
            }
        }
        table
    }

    /// What these stems may stand for.
    pub(super) fn meant(&self, stems: &[String]) -> &[String] {
        match stems {
            [one] => self.meant.get(one),
            many => self.meant.get(&many.join(" ")),
        }
        .map_or(&[], Vec::as_slice)
    }

    /// The longest phrase, in words.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// A word that is two others written as one, such as `heapsnapshot`.
    pub(super) fn split<'w>(&self, word: &'w str) -> Option<(&'w str, &'w str)> {
        if !word.is_ascii() || word.len() < 6 || self.parts.contains(word) {
            return None;
        }
        (3..word.len() - 2)
            .map(|at| word.split_at(at))
            .find(|(a, b)| self.parts.contains(*a) && self.parts.contains(*b))
    }
}
